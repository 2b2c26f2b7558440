"""Read the entries of a tar.zst block by block, accepting only plain ones.

`tarfile` decodes the headers; its own reader is not used, because it reads whole extension
headers into memory, recurses through chains of them, and skips what it does not understand.
"""

import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Protocol

import zstandard

from forge_schema.model.bundles import link_fault
from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import counted

BLOCK = tarfile.BLOCKSIZE
RECORD = tarfile.RECORDSIZE
FEED = 1 << 10  # a zstd block of 4 bytes can give 128 KiB, so one feed gives 32 MiB at most
CHUNK = 1 << 18
MAX_WINDOW = 8 << 20
MAX_PAX = 4096
LONG_KEYS = ("path", "linkpath")
PLAIN_KEYS = {*LONG_KEYS, "mtime", "atime", "ctime"}  # the times are ignored
NAME_FIELD = slice(0, 100)
TYPE_FIELD = slice(156, 157)
LINK_FIELD = slice(157, 257)
PREFIX_FIELD = slice(345, 500)


class BundleRefused(ForgeError):
    """The archive is not a plain one; whoever reads it keeps nothing of it."""

    code = "bundle_refused"


class Readable(Protocol):
    """A file as far as it is needed here."""

    def read(self, size: int, /) -> bytes:
        """Return up to so many bytes, none at the end."""


@dataclass(frozen=True)
class Header:
    """One entry: a regular file of `size` bytes, a folder, or a link with its target.

    A link leads to another path of the archive, or to none.
    """

    name: str
    folder: bool
    executable: bool
    size: int
    link: str | None = None


class TarStream:
    """Files of a single zstd frame each that together contain a single tar archive, nothing more.

    The next file is asked for when the one before it was read to its end.
    """

    def __init__(self, files: Iterable[Readable]) -> None:
        self._files = iter(files)
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
        self._file: Readable = BytesIO()
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._ready = bytearray()

    def headers(self) -> Iterator[Header]:
        """Yield each entry; its content must be read with `content` before the next one.

        Links come last, so that whoever writes the entries in order writes nothing through one.

        Raises:
            BundleRefused: an entry is not plain, or the archive is truncated or has trailing data.
        """
        extension: dict[str, str] = {}
        links = False
        while any(block := self._exactly(BLOCK)):
            if block[TYPE_FIELD] == tarfile.XHDTYPE and not extension:
                extension = self._extension(block)
                continue
            header = _plain_header(block, extension)
            if links and header.link is None:
                raise BundleRefused(f"{header.name!r} comes after a link")
            links = header.link is not None
            extension = {}
            yield header
        if extension:
            raise BundleRefused("an extension header has no entry")
        self._expect_end()

    def content(self, size: int) -> Iterator[bytes]:
        """Yield a file's `size` bytes, and skip the padding after them."""
        left = size
        while left:
            chunk = self._exactly(min(left, CHUNK))
            left -= len(chunk)
            yield chunk
        if any(self._exactly(-size % BLOCK)):
            raise BundleRefused("the padding after a file is not empty")

    def _extension(self, block: bytes) -> dict[str, str]:
        """Return the name or the link that is too long, or too foreign, for a header."""
        size = _decoded(block).size
        if not 0 < size <= MAX_PAX:
            raise BundleRefused(f"an extension header has {counted(size, 'byte')}")
        body = b"".join(self.content(size))
        records = _records(body)
        found = {key: records[key] for key in LONG_KEYS if key in records}
        if not found or not records.keys() <= PLAIN_KEYS:
            raise BundleRefused(f"an extension header changes {sorted(records)}")
        return found

    def _expect_end(self) -> None:
        """Expect one more empty block, zeros to the end of the record, then nothing."""
        rest = bytearray(self._exactly(BLOCK))
        while len(rest) <= RECORD and self._fill(1):
            rest += self._taken(len(self._ready))
        if len(rest) > RECORD or any(rest):
            raise BundleRefused("there is data after the end of the archive")
        if self._frame is not None:
            raise BundleRefused("the archive is truncated")

    def _exactly(self, size: int) -> bytes:
        if not self._fill(size):
            raise BundleRefused("the archive is truncated")
        return self._taken(size)

    def _taken(self, size: int) -> bytes:
        taken = bytes(self._ready[:size])
        del self._ready[:size]
        return taken

    def _fill(self, size: int) -> bool:
        """Decompress until `size` bytes are ready; False if there are no more."""
        while len(self._ready) < size:
            if self._frame is None and not self._next_file():
                return False
            fed = self._file.read(FEED)
            if not fed:
                return False
            self._feed(fed)
        return True

    def _next_file(self) -> bool:
        file = next(self._files, None)
        if file is None:
            return False
        self._file, self._frame = file, self._decompressor.decompressobj()
        return True

    def _feed(self, fed: bytes) -> None:
        assert self._frame is not None  # noqa: S101 - the caller has opened it
        try:
            self._ready += self._frame.decompress(fed)
        except zstandard.ZstdError as error:
            raise BundleRefused(f"the archive is not valid zstd: {error}") from error
        if not self._frame.eof:
            return
        if self._frame.unused_data or self._file.read(1):
            raise BundleRefused("the file has data after the archive")
        self._frame = None


def _plain_header(block: bytes, extension: Mapping[str, str]) -> Header:
    info = _decoded(block)
    name = extension.get("path", info.name)
    target = extension.get("linkpath", info.linkname)
    kind = block[TYPE_FIELD]
    if kind not in {tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE}:
        raise BundleRefused(f"{name!r} is neither a file, nor a folder, nor a link (type {kind!r})")
    folder, link = kind == tarfile.DIRTYPE, kind == tarfile.SYMTYPE
    if bool(target) != link or info.size < 0 or (kind != tarfile.REGTYPE and info.size):
        raise BundleRefused(f"{name!r} has a header that contradicts itself")
    if not 0 <= info.mode <= 0o777:  # noqa: PLR2004  the permission bits
        raise BundleRefused(f"{name!r} has the special mode {info.mode:o}")
    if folder:
        name = name.removesuffix("/")
    if fault := link and link_fault(name, target):
        raise BundleRefused(f"{name!r} is a link to {target!r}, which {fault}")
    executable = folder or bool(info.mode & 0o100 and not link)
    return Header(name, folder, executable, info.size, target if link else None)


def _decoded(block: bytes) -> tarfile.TarInfo:
    for field in (NAME_FIELD, LINK_FIELD, PREFIX_FIELD):
        if any(block[field].partition(b"\0")[2]):
            raise BundleRefused("a header hides bytes behind a NUL")
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    except (tarfile.HeaderError, ValueError) as error:
        raise BundleRefused(f"a header cannot be read: {error}") from error


def _records(body: bytes) -> dict[str, str]:
    """Read the records `length key=value` of an extension header, each key at most once."""
    records: dict[str, str] = {}
    while body:
        digits, _, _ = body.partition(b" ")
        length = int(digits) if digits.isdigit() and len(digits) <= 4 else 0  # noqa: PLR2004
        record, body = body[:length], body[length:]
        key, equals, value = record[len(digits) + 1 : -1].partition(b"=")
        if len(record) != length or not equals or not record.endswith(b"\n"):
            raise BundleRefused("an extension header is malformed")
        try:
            keyword, text = key.decode(), value.decode()
        except UnicodeDecodeError as error:
            raise BundleRefused("an extension header is not UTF-8") from error
        if keyword in records:
            raise BundleRefused(f"an extension header repeats {keyword!r}")
        records[keyword] = text
    return records
