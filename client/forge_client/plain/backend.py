"""A backend that asks plainly, and leaves what is not plain to the whole client."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from forge_client.plain.place import ServerPlace
from forge_client.plain.verbs import PlainVerbs, with_keys
from forge_client.plain.wire import ANSWER_S, NotPlain, Wire

if TYPE_CHECKING:
    from forge_client.backend import Backend

# Besides `NotPlain`: the answer is not what this version of Forge knows.
UNKNOWN = (KeyError, ValueError, TypeError, AttributeError)


class PlainBackend:
    """Does the verbs of `PlainVerbs`; all others, and all from the first that is not plain, whole.

    So an error is the whole client's, which has tried again. Nothing else than what may be done
    twice is done plainly.

    Args:
        place: the server.
        whole: makes the backend for everything else.
        patience_s: the longest silence of the server, in seconds.
    """

    def __init__(
        self, place: ServerPlace, whole: Callable[[], "Backend"], *, patience_s: float = ANSWER_S
    ) -> None:
        self._verbs = PlainVerbs(Wire(place.url, place.headers, patience_s), place.owner)
        self.owner, self.slowest_s = place.owner, place.slowest_s
        self._make_whole = whole
        self._whole: Backend | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._verbs.close()
        if self._whole is not None:
            self._whole.__exit__(*exc)

    @property
    def findings(self) -> "SomeVerbs":
        """What jobs found out."""
        return SomeVerbs(self, self._verbs, lambda: self.whole().findings)

    def submit(self, specs: Sequence[Mapping[str, Any]]) -> list[int]:
        """Submit jobs, as `HttpBackend` does: a lost answer cannot duplicate them."""
        jobs = with_keys(specs)
        ids: list[int] = SomeVerbs(self, self._verbs, self.whole).submit(jobs) if jobs else []
        return ids

    def whole(self) -> "Backend":
        """Return the backend for everything else."""
        if self._whole is None:
            self._whole = self._make_whole()
        return self._whole

    def given_up(self) -> bool:
        """Tell whether everything is done whole from now on."""
        return self._whole is not None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any verb
        return getattr(SomeVerbs(self, self._verbs, self.whole), name)


class SomeVerbs:
    """Some of a backend's verbs, each done plainly if that is possible."""

    def __init__(self, backend: PlainBackend, plain: object, whole: Callable[[], Any]) -> None:
        self._backend, self._plain, self._whole = backend, plain, whole

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any verb
        plain = getattr(self._plain, name, None)
        if plain is None or self._backend.given_up():
            return getattr(self._whole(), name)

        def act(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the verb
            with suppress(NotPlain, *UNKNOWN):
                return plain(*args, **kwargs)
            return getattr(self._whole(), name)(*args, **kwargs)

        return act
