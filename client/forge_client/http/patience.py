"""Trying again, for a while, what may pass: a server that restarts, a network that stumbles."""

import random
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from forge_client.errors import ClientError

T = TypeVar("T")

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0


class Passing(Exception):
    """What went wrong may pass.

    Args:
        error: what to say when it did not.
        unsure: whether the request may have taken effect.
        after_s: not to be tried again before, in seconds.
    """

    def __init__(self, error: ClientError, *, unsure: bool, after_s: float = 0.0) -> None:
        super().__init__(error.message)
        self.error = error
        self.unsure = unsure
        self.after_s = after_s


def patiently(act: Callable[[], T], *, patience_s: float, again: bool = True) -> T:
    """Act until it goes well, for at most about `patience_s` seconds.

    Args:
        act: raises `Passing` for what may pass; any other error ends it.
        patience_s: after how many seconds no new try is begun.
        again: whether to try again also where the last try may have taken effect.

    Raises:
        ClientError: what the last try said, or that it is not known what came of it.
    """
    deadline = time.monotonic() + patience_s
    for pause in _pauses():
        try:
            return act()
        except Passing as failed:
            if failed.unsure and not again:
                raise _unsure(failed.error) from failed
            rest = max(pause, failed.after_s)
            if time.monotonic() + rest > deadline:
                raise failed.error from failed
        time.sleep(rest)
    raise AssertionError  # the pauses do not end


def _pauses() -> Iterator[float]:
    """Yield growing pauses, each of a random length, so that many callers do not come at once."""
    longest = FIRST_PAUSE_S
    while True:
        yield random.uniform(longest / 2, longest)  # noqa: S311 - no secret
        longest = min(longest * 2, LONGEST_PAUSE_S)


def _unsure(error: ClientError) -> ClientError:
    return ClientError(
        f"{error.message}; whether the request was carried out is not known",
        hint="check whether it took effect before you repeat it",
        code="answer_lost",
        exit_code=error.exit_code,
    )
