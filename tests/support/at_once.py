"""Run calls at the same moment, each in its own thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def at_once(*calls: Callable[[], T]) -> list[T]:
    """Return the results of the calls, in order; re-raise an exception from any of them."""
    barrier = Barrier(len(calls))

    def released(call: Callable[[], T]) -> T:
        barrier.wait(timeout=120)
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        futures = [threads.submit(released, call) for call in calls]
        return [future.result(timeout=240) for future in futures]
