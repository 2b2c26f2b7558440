"""What a worker remembers of a claim whose answer never came."""

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple
from uuid import UUID, uuid4


class Ask(NamedTuple):
    """A claim's nonce, and whether it was sent before."""

    nonce: UUID | None = None
    repeated: bool = False


class Unanswered:
    """Names each claim, and repeats the name of one that failed: it may have been granted jobs.

    Those are handed out again then. A worker claims one at a time.
    """

    def __init__(self) -> None:
        self._nonce: UUID | None = None

    @property
    def pending(self) -> bool:
        """Whether the last claim may have been granted jobs that nobody knows of."""
        return self._nonce is not None

    def claim(self, count: int) -> AbstractContextManager[Ask]:
        """Name a claim of `count` jobs until its answer is there; a claim of none needs no name."""
        return self if count > 0 else nullcontext(Ask())

    def __enter__(self) -> Ask:
        repeated = self._nonce is not None
        self._nonce = self._nonce or uuid4()
        return Ask(self._nonce, repeated)

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self._nonce = None
