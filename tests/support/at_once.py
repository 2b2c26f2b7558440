"""Calls made at the same moment, each in a thread of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def at_once(*calls: Callable[[], T]) -> list[T]:
    """Return what the calls return, in order; what one raises is raised here."""
    barrier = Barrier(len(calls))

    def released(call: Callable[[], T]) -> T:
        barrier.wait(timeout=120)
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        futures = [threads.submit(released, call) for call in calls]
        return [future.result(timeout=240) for future in futures]
