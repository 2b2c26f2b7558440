"""What a probe of a store finds about each of its capabilities."""

from enum import StrEnum

from forge_schema.classes import dataclass
from forge_schema.storage.store import ObjectMissing, StoreError, StoreUnfit

CONTENT = b"forge tries this store; it may be deleted"


class ProbeVerdict(StrEnum):
    """What a finding means for Forge."""

    OK = "ok"
    WEAK = "weak"
    """Forge makes do, with a loss that the finding names."""
    FAILED = "failed"
    """It could not be tried, or these credentials may not do it."""
    UNFIT = "unfit"
    """Forge cannot work with this store."""


@dataclass(frozen=True)
class ProbeFinding:
    """What a probe found about one capability."""

    capability: str
    verdict: ProbeVerdict
    detail: str
    hint: str = ""


def failed(capability: str, error: StoreError) -> ProbeFinding:
    """Return an error as a finding. One that may pass, or is about rights, rules nothing out."""
    lasts = isinstance(error, StoreUnfit | ObjectMissing)
    verdict = ProbeVerdict.UNFIT if lasts else ProbeVerdict.FAILED
    return ProbeFinding(capability, verdict, error.message, error.hint)
