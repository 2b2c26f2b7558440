"""The worker's connections to the queue and the store; what it needs of the store."""

from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

from forge_schema.storage import Piece, Progress, Taken


class Objects(Protocol):
    """The objects of one attempt; a `Store` has this interface.

    Every method may raise `StoreUnreachable`, and `KeyInvalid` for a key that is not the attempt's;
    writing may raise `ObjectTooLarge`.
    """

    def expect(self, *, puts: Sequence[Piece] = (), gets: Sequence[str] = ()) -> None:
        """Prepare for objects that are written or read next, in as few requests as possible."""

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Write an object; with `if_absent`, return False if it exists."""

    def put_part(self, key: str, file: BinaryIO, offset: int, size: int) -> bool:
        """Write an object by a copy of a part of an open file; False if this store cannot.

        Its key ends in its SHA-256. If the file ends before, so does the object, or it is refused.
        """

    def put_unread(
        self,
        key: Callable[[str], str],
        file: BinaryIO,
        offset: int,
        size: int,
        wanted: Callable[[str], bool],
        /,
    ) -> Taken | None:
        """Copy and hash a part of an open file in one go; None if this store cannot.

        If `wanted` says so of its SHA-256, the copy is the object at the `key` for that, which ends
        in it.
        """

    def put_file(
        self, key: str, path: Path, *, if_absent: bool = False, progress: Progress | None = None
    ) -> bool:
        """Write an object from a file, as `put`."""

    def put_together(self, objects: Mapping[str, bytes]) -> bool:
        """Write up to 100 objects, 512 KiB in all, in one step; False if this store cannot.

        After an error, some of them may exist.
        """

    def get(self, key: str) -> bytes:
        """Read an object.

        Raises:
            ObjectMissing: the object does not exist.
        """

    def stream(self, key: str) -> Generator[bytes, None, None]:
        """Yield an object's content in pieces of at most 1 MiB.

        Raises:
            ObjectMissing: the object does not exist.
        """

    def get_file(self, key: str, path: Path, *, progress: Progress | None = None) -> None:
        """Read an object into a file, which appears whole or not at all.

        Raises:
            ObjectMissing: the object does not exist.
        """
