"""Jobs that differ only as those of a sweep do, and wait for nothing: most of what is submitted."""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from operator import itemgetter
from typing import Any

from pydantic_core import to_json

from forge_schema.database import arrays
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
COMMON = itemgetter(*(JobSpec.model_fields.keys() - {*OWN, "idempotency_key"}))
# A job that has one of these waits for something.
WAITS = itemgetter("delay_s", "parallel", "from_checkpoint", "after", "after_ok", "after_any")


def is_plain(spec: JobSpec) -> bool:
    """Tell whether a job needs one machine, and waits for nothing."""
    return spec.nodes == 1 and not any(WAITS(vars(spec)))


class Alike:
    """What some jobs have in common, written once for all of them."""

    def __init__(self, first: JobSpec) -> None:
        content = first.content()
        self._common = _common(first)
        self._shared = to_json(first.shared(content))[:-1] + b","
        self._between = list(_between(content))
        self._params = {
            **{name: getattr(first, name) for name in COLUMNS},
            "kind": first.kind.value,
            "nice": -first.priority,
            "uploads": named(first),
        }

    def has(self, specs: Sequence[JobSpec]) -> bool:
        """Tell whether all of these have it in common."""
        common = self._common
        return all(_common(spec) == common for spec in specs)

    def params(self, specs: Sequence[JobSpec], stem: str) -> dict[str, Any]:
        """Return such jobs as parameters of `submit_alike`, all but their lane."""
        owns = [_own(spec) for spec in specs]
        return {
            **self._params,
            "names": arrays.texts([spec.name for spec in specs]),
            "specs": arrays.documents([self._shared + _varied(own) for own in owns]),
            "keys": arrays.texts(
                [spec.idempotency_key or f"{stem}{n}" for n, spec in enumerate(specs)]
            ),
            "digests": arrays.texts([self._digest(own) for own in owns]),
        }

    def _digest(self, own: Mapping[str, Any]) -> str:
        """Return a job's `content_digest`."""
        parts = [
            f'{text}"{name}": {sorted_json(own[name])}, ' if name in own else text
            for text, name in self._between
        ]
        return sha256(("{" + "".join(parts)[:-2] + "}").encode()).hexdigest()


def _common(spec: JobSpec) -> tuple[object, ...]:
    # Whether a default was asked for matters for retries.
    return COMMON(vars(spec)), "max_failures" in spec.model_fields_set


def _own(spec: JobSpec) -> dict[str, Any]:
    # As `content` has them: without their defaults, which are empty.
    fields = vars(spec)
    return {name: fields[name] for name in OWN if fields[name]}


def _varied(own: Mapping[str, Any]) -> bytes:
    varied = {"env": {}, **own}
    del varied["name"]
    return to_json(varied)[1:]


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
