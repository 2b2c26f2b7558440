"""What classes are made with: data classes, and a property for objects that threads share."""

import dataclasses
from functools import cached_property
from operator import attrgetter
from reprlib import recursive_repr
from threading import RLock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - it is for those who import it

    made_once = cached_property
else:

    def dataclass(
        cls: type | None = None, /, *, frozen: bool = False, eq: bool = True, slots: bool = False
    ) -> Any:  # noqa: ANN401 - a class, or what makes one
        """`dataclasses.dataclass`, of whose methods only `__init__` is compiled for each class.

        Python compiles six for a frozen one: for the 230 of a worker, a tenth of its start. That
        nobody changes a frozen one is checked with the types, and not while a program runs.
        """
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, eq=eq, slots=slots)
        # Without one, Python looks for the signature.
        cls.__doc__ = cls.__doc__ or cls.__name__
        made = dataclasses.dataclass(cls, eq=False, repr=False, slots=slots)
        compared = [field.name for field in dataclasses.fields(made) if field.compare]
        shared = {"__repr__": _repr}
        if eq:
            # With the class, what it gets is a tuple; as there, what is the same object is equal.
            shared |= {"_compared": attrgetter(*compared, "__class__"), "__eq__": _eq}
            shared["__hash__"] = _hash if frozen else None
        for name in shared.keys() - cls.__dict__.keys():
            setattr(made, name, shared[name])
        return made

    def _eq(self: Any, other: object) -> bool:  # noqa: ANN401 - any of them
        if other.__class__ is not self.__class__:
            return NotImplemented
        return self._compared(self) == self._compared(other)

    def _hash(self: Any) -> int:  # noqa: ANN401 - as above
        return hash(self._compared(self))

    @recursive_repr()
    def _repr(self: Any) -> str:  # noqa: ANN401 - as above
        shown = [field.name for field in dataclasses.fields(self) if field.repr]
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{self.__class__.__qualname__}({values})"

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
