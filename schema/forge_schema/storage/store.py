"""What Forge asks of an object store."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

Progress = Callable[[int], None]
"""Told the bytes moved since its last call, from the thread that called the store."""


@dataclass(frozen=True)
class StoredObject:
    """One object in a listing; `size` in bytes."""

    key: str
    size: int


class Store(Protocol):
    """An object store: whole objects appear at once or not at all.

    One store may be used from several threads. Every method may raise `StoreUnreachable`, and
    `KeyInvalid` for a key that is not one of ours.
    """

    @property
    def url(self) -> str:
        """The URL it was opened with."""

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Write an object; with `if_absent`, answer False where it exists.

        False may also mean that this call's own first try arrived although its answer was lost.
        """

    def put_file(
        self, key: str, path: Path, *, if_absent: bool = False, progress: Progress | None = None
    ) -> bool:
        """Write an object from a file, as `put`; a failure leaves nothing behind in the store."""

    def get(self, key: str) -> bytes:
        """Read an object.

        Raises:
            ObjectMissing: there is none.
        """

    def get_file(self, key: str, path: Path, *, progress: Progress | None = None) -> None:
        """Read an object into a file, which appears whole and flushed, or not at all.

        Raises:
            ObjectMissing: there is none.
        """

    def size(self, key: str) -> int | None:
        """Return an object's size in bytes, None where there is none."""

    def uploader(self, key: str) -> str | None:
        """Return the owner that a signed URL made the store remember, None where there is none."""

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Walk the objects whose key begins with `prefix`, in the order of their keys."""

    def delete(self, key: str) -> None:
        """Remove an object; an absent one is fine."""

    def check(self) -> None:
        """Ask the store whether it is there, within 15 seconds.

        Raises:
            StoreUnreachable: it does not answer, or does not let us in.
            StoreUrlInvalid: it answers that there is no such store.
        """

    def tidy(self, older_than_s: float) -> int:
        """Remove what writers that were killed left unfinished this long ago; count it."""
