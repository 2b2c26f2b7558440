"""Wait for a condition, with a deadline instead of a guess."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
RARELY_S = 0.2


class Eventually(Protocol):
    """The type of the fixture `eventually`."""

    def __call__(self, probe: Callable[[], T], timeout: float = 120, every: float = 0.02) -> T: ...


def eventually(probe: Callable[[], T], timeout: float = 120, every: float = 0.02) -> T:
    """Return the first truthy result of `probe`, called every `every` seconds at first.

    What takes long is asked about less often: probes cost more than most of what they wait for.
    An AssertionError inside the probe counts as "not yet", so a probe may assert.

    Raises:
        AssertionError: no truthy result within `timeout` seconds.
    """
    began = time.monotonic()
    pause = threading.Event()
    while True:
        last: object
        try:
            last = answer = probe()
            if answer:
                return answer
        except AssertionError as error:
            last = error
        waited = time.monotonic() - began
        if waited >= timeout:
            raise AssertionError(f"still not so after {timeout:g} s; last seen: {last!r}")
        pause.wait(max(every, min(waited / 10, RARELY_S)))
