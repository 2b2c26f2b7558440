"""Jobs that differ only as those of a sweep do, and wait for nothing: most of what is submitted."""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from operator import itemgetter
from typing import Any

from pydantic_core import to_json

from forge_schema.database.statements import jsonb_array, text_array
from forge_schema.model.job import SHOWN
from forge_schema.model.spec import VARIED, JobSpec, sorted_json
from forge_schema.queue.inputs import named

# The columns of `job` that are fields of the request.
COLUMNS = (
    *("owner", "bundle_digest", "max_failures", "max_losses", "max_preemptions", "backoff_s"),
    *("timeout_s", "sweep", "experiment"),
)
# What the jobs of a sweep differ in, and all others have in common.
OWN = ("name", *VARIED)
OF_EACH = frozenset({*OWN, "idempotency_key"})
# In the payload even if they are empty.
ALWAYS = ("command", "env")
# Of a job without a key: nobody else can ask for the one that it is given.
NO_DIGEST = ""
# A job that has one of these waits for something.
WAITS = itemgetter("delay_s", "parallel", "from_checkpoint", "after", "after_ok", "after_any")


def is_plain(spec: JobSpec) -> bool:
    """Tell whether a job needs one machine, and waits for nothing."""
    return spec.nodes == 1 and not any(WAITS(vars(spec)))


def new_key(stem: str, place: int) -> str:
    """Return the key of a job that asks for none; in order, they take the index less time."""
    return f"{stem}{place:06}"


class Alike:
    """What some jobs have in common, written once for all of them."""

    def __init__(self, first: JobSpec) -> None:
        # What is not set has its default. The two names make it several in any case.
        self._set = first.model_fields_set - OF_EACH
        self._of = itemgetter("owner", "queue", *self._set)
        self._common = self._of(vars(first))
        self.lane = first.lane()
        content = first.content()
        self._between = list(_between(content))
        self._params = {
            **{name: getattr(first, name) for name in COLUMNS},
            "kind": first.kind.value,
            "nice": -first.priority,
            "uploads": named(first),
            "shared": to_json(first.shared(content)).decode(),
        }

    def has(self, specs: Sequence[JobSpec]) -> bool:
        """Tell whether all of these have it in common."""
        return all(
            spec.model_fields_set - OF_EACH == self._set and self._of(vars(spec)) == self._common
            for spec in specs
        )

    def params(self, specs: Sequence[JobSpec], stem: str) -> dict[str, Any]:
        """Return such jobs as parameters of `submit_alike`, all but their lane."""
        return {
            **self._params,
            "names": text_array([spec.name for spec in specs]),
            "specs": jsonb_array([_varied(vars(spec)) for spec in specs]),
            "keys": text_array(
                [spec.idempotency_key or new_key(stem, n) for n, spec in enumerate(specs)]
            ),
            "digests": text_array(
                [self._digest(vars(spec)) if spec.idempotency_key else NO_DIGEST for spec in specs]
            ),
        }

    def _digest(self, fields: Mapping[str, Any]) -> str:
        """Return a job's `content_digest`: fields of its own that are empty have their default."""
        parts = [
            f'{text}"{name}": {sorted_json(fields[name])}, ' if fields.get(name) else text
            for text, name in self._between
        ]
        return sha256(("{" + "".join(parts)[:-2] + "}").encode()).hexdigest()


def _varied(fields: Mapping[str, Any]) -> bytes:
    return to_json({name: fields[name] for name in VARIED if fields[name] or name in ALWAYS})


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
