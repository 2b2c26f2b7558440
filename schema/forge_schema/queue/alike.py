"""Jobs that differ only as those of a sweep do, and wait for nothing: most of what is submitted."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from operator import itemgetter
from typing import Any

from pydantic_core import to_json

from forge_schema.model.lease import array
from forge_schema.model.spec import SHOWN, VARIED, JobSpec, sorted_json
from forge_schema.queue.inputs import named

# The columns of `job` that are fields of the request.
COLUMNS = (
    *("owner", "bundle_digest", "max_failures", "max_losses", "max_preemptions", "backoff_s"),
    *("timeout_s", "sweep", "experiment"),
)
# What the jobs of a sweep differ in, and all others have in common.
OWN = ("name", *VARIED)
OF_EACH = frozenset({*OWN, "idempotency_key"})
# Of a job without a key: nobody else can ask for the one that it is given.
NO_DIGEST = ""
# Between what jobs have of their own. No JSON has it.
SEPARATOR = "\x1f"
# A job that has one of these waits for something, or has rows in other tables.
WAITS = itemgetter("delay_s", "parallel", "from_checkpoint", "after", "after_ok", "after_any")


def is_plain(spec: JobSpec) -> bool:
    """Tell whether a job needs one machine and waits for nothing."""
    return spec.nodes == 1 and not any(WAITS(vars(spec)))


def new_key(stem: str, place: int) -> str:
    """Return the key of a job that asks for none; in order, they take the index less time."""
    return f"{stem}{place:06}"


class Alike:
    """What some jobs have in common, written once for all of them."""

    def __init__(self, first: JobSpec) -> None:
        # What is not set has its default. The two names make it several in any case.
        self._set = first.model_fields_set - OF_EACH
        self._of = itemgetter("owner", "queue", *self._set - {"resources"})
        self._common = self._of(vars(first))
        # Comparing two models takes ten times as long.
        self._resources = vars(first.resources)
        self.lane = first.lane()
        content = first.content()
        self._between = list(_between(content))
        self._params = {
            **{name: getattr(first, name) for name in COLUMNS},
            "kind": first.kind.value,
            "nice": -first.priority,
            "uploads": array(named(first)),
            # The separator is in no tag.
            "tags": SEPARATOR.join(set(first.tags)) or None,
            "shared": to_json(first.shared(content)).decode(),
        }
        self.has_inputs = bool(first.inputs)

    def has(self, specs: Iterable[JobSpec]) -> bool:
        """Tell whether all of these have it in common."""
        of, common, resources = self._of, self._common, self._resources
        seen: set[str] = set()
        for spec in specs:
            # Most have the same fields, of which a new set would be made for each. Not by the
            # property `model_fields_set`, which takes a tenth of the time.
            if (given := spec.__pydantic_fields_set__) != seen:
                if given - OF_EACH != self._set:
                    return False
                seen = given
            fields = vars(spec)
            if of(fields) != common or vars(fields["resources"]) != resources:
                return False
        return True

    def params(self, specs: Sequence[JobSpec], stem: str) -> dict[str, Any] | None:
        """Return such jobs as parameters of `submit_alike`, all but their lane.

        None if one has the separator in its name or key.
        """
        fields = [vars(spec) for spec in specs]
        asked = [of["idempotency_key"] for of in fields]
        digests = None
        if any(asked):
            keys = SEPARATOR.join([key or new_key(stem, n) for n, key in enumerate(asked)])
            own_keys = zip(asked, fields, strict=True)
            digests = [self._digest(of) if key else NO_DIGEST for key, of in own_keys]
        else:
            keys = stem + (SEPARATOR + stem).join(_places(len(fields)))
        names = SEPARATOR.join([of["name"] for of in fields])
        if any(text.count(SEPARATOR) >= len(specs) for text in (names, keys)):
            return None
        return {
            **self._params,
            "names": names,
            "specs": _varied(fields, stem),
            "keys": keys,
            "digests": digests and SEPARATOR.join(digests),
        }

    def _digest(self, fields: Mapping[str, Any]) -> str:
        """Return a job's `content_digest`: fields of its own that are empty have their default."""
        parts = [
            f'{text}"{name}": {sorted_json(fields[name])}, ' if fields.get(name) else text
            for text, name in self._between
        ]
        return sha256(("{" + "".join(parts)[:-2] + "}").encode()).hexdigest()


@lru_cache(maxsize=4)
def _places(count: int) -> list[str]:
    return [new_key("", place) for place in range(count)]


def _varied(jobs: Sequence[Mapping[str, Any]], stem: str) -> str:
    """Return the fields `VARIED` of jobs as JSON, with the separator between two."""
    # Written all at once, with the stem between, which nobody could know before.
    every: list[object] = [stem] * (2 * len(jobs) - 1)
    every[::2] = map(_own, jobs)
    return to_json(every).decode()[1:-1].replace(f',"{stem}",', SEPARATOR)


def _own(fields: Mapping[str, Any]) -> dict[str, Any]:
    # In two thirds of the time that a loop takes.
    own = {"command": fields["command"]}
    if env := fields["env"]:
        own["env"] = env
    if arguments := fields["arguments"]:
        own["arguments"] = arguments
    if parameters := fields["parameters"]:
        own["parameters"] = parameters
    return own


def _between(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the content as JSON, in the pieces before each field that jobs have of their own."""
    text = ""
    for name in sorted({*content, *OWN} - SHOWN):
        if name in OWN:
            yield text, name
            text = ""
        else:
            text += f'"{name}": {sorted_json(content[name])}, '
    yield text, ""
