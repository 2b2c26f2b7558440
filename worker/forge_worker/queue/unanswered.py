"""What a worker may have been granted without knowing it."""

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple
from uuid import UUID, uuid4


class Ask(NamedTuple):
    """A claim's nonce, and whether a claim of this name was sent before.

    Of one that was `repeated` there was no answer. One that was `offered` found nothing, and the
    worker may be leased for a gang since.
    """

    nonce: UUID | None = None
    repeated: bool = False
    offered: bool = False


class Unanswered:
    """Names each claim, and repeats the name of one that failed: it may have been granted jobs.

    Those are handed out again then. So is what a gang was granted under the name of a claim that
    found nothing, if that is kept (`offers`). A worker claims one at a time.
    """

    def __init__(self) -> None:
        self._nonce: UUID | None = None
        self._answered = False
        self._offers = False

    @property
    def pending(self) -> bool:
        """Whether the worker may have been granted jobs that nobody knows of."""
        return self._nonce is not None

    def claim(self, count: int) -> AbstractContextManager[Ask]:
        """Name a claim of `count` jobs until its answer is there; a claim of none needs no name."""
        return self if count > 0 else nullcontext(Ask())

    def offers(self) -> None:
        """Keep the name of the claim under way, whose answer is that there is nothing."""
        self._offers = True

    def __enter__(self) -> Ask:
        before = self._nonce is not None
        ask = Ask(
            self._nonce or uuid4(),
            repeated=before and not self._answered,
            offered=before and self._answered,
        )
        self._nonce, self._answered, self._offers = ask.nonce, False, False
        return ask

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self._answered = True
            if not self._offers:
                self._nonce = None
