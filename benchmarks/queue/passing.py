"""Passing jobs through a queue, turn by turn."""

from collections.abc import Callable

# Other claims may hold every job that a look can see, but not for long.
EMPTY_TURNS = 1000


def passed(turn: Callable[[int], int], jobs: int, count: int) -> int:
    """Turn until at least this many jobs were claimed, `count` at a time; return how many were.

    Raises:
        AssertionError: the queue ran dry.
    """
    done = empty = 0
    while done < jobs:
        got = turn(count)
        done += got
        empty = 0 if got else empty + 1
        assert empty < EMPTY_TURNS, "the queue ran dry"
    return done
