"""A property that is made when it is first read, for objects that threads share."""

from functools import cached_property
from threading import RLock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    made_once = cached_property
else:

    class made_once(cached_property):  # noqa: N801 - a decorator, as `cached_property`
        """`functools.cached_property` with the lock that it lost in Python 3.12.

        Threads that read it at once see the same object, where Python's would each make their own.
        """

        def __init__(self, make: Any) -> None:  # noqa: ANN401 - as there
            super().__init__(make)
            self._lock = RLock()

        def __get__(self, instance: object, owner: type | None = None) -> Any:  # noqa: ANN401 - as there
            with self._lock:
                return super().__get__(instance, owner)
