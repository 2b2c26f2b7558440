"""The code of jobs: bundles read entry by entry, accepting only plain ones, and their comparison.

`tarfile` decodes the headers; its own reader is not used, because it reads whole extension
headers into memory, recurses through chains of them, and skips what it does not understand.
"""

import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import Match, SequenceMatcher
from io import BytesIO
from typing import Protocol

from forge_schema.model.bundles import PIP_HASH, WRITTEN, link_fault
from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import counted
from forge_schema.zstd import ZstdDecompressor, ZstdError, decompressor

BLOCK = tarfile.BLOCKSIZE
RECORD = tarfile.RECORDSIZE
FEED = 1 << 16
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
        self._file: Readable = BytesIO()
        self._frame: ZstdDecompressor | None = None
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
        long_names = {key: records[key] for key in LONG_KEYS if key in records}
        if not long_names or not records.keys() <= PLAIN_KEYS:
            raise BundleRefused(f"an extension header changes {sorted(records)}")
        return long_names

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
            assert self._frame is not None  # noqa: S101 - it was there, or opened just now
            hungry = self._frame.needs_input
            fed = self._file.read(FEED) if hungry else b""
            if hungry and not fed:
                return False
            self._feed(self._frame, fed)
        return True

    def _next_file(self) -> bool:
        file = next(self._files, None)
        if file is None:
            return False
        self._file, self._frame = file, decompressor(MAX_WINDOW)
        return True

    def _feed(self, frame: ZstdDecompressor, fed: bytes) -> None:
        try:
            self._ready += frame.decompress(fed, max_length=CHUNK)
        except ZstdError as error:
            raise BundleRefused(f"the archive is not valid zstd: {error}") from error
        if not frame.eof:
            return
        if frame.unused_data or self._file.read(1):
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


class TooDifferent(Exception):
    """Two files are so different that comparing them takes too long."""


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names of files as they are compared: the project's own, then lists of packages."""
    return sorted(names, key=lambda name: (name.startswith(WRITTEN), name))


def link_content(target: str) -> bytes:
    """Return what stands for a link where files are compared."""
    return f"link to {target}\n".encode()


def differences(
    name: str, before: bytes | None, after: bytes | None, *, late: Callable[[], bool] | None = None
) -> Iterator[str]:
    """Yield the lines of a unified diff of a file; none if it is the same.

    Args:
        name: its name in both bundles.
        before: its content, None if it is in the second one only.
        after: the same of the second one.
        late: asked again and again whether it has taken too long.

    Raises:
        TooDifferent: it was `late`.
    """
    if before == after:
        return
    try:
        old, new = _lines(name, before or b""), _lines(name, after or b"")
    except UnicodeDecodeError:
        yield f"Binary file {name} differs"
        return
    groups = _Matcher(old, new, late).get_grouped_opcodes()
    for number, group in enumerate(groups):
        if not number:
            yield "--- /dev/null" if before is None else f"--- a/{name}"
            yield "+++ /dev/null" if after is None else f"+++ b/{name}"
        yield f"@@ -{_span(group[0][1], group[-1][2])} +{_span(group[0][3], group[-1][4])} @@"
        for kind, *places in group:
            yield from _hunk(kind, old[slice(*places[:2])], new[slice(*places[2:])])


def _hunk(kind: str, old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    if kind == "equal":
        yield from (f" {line}" for line in old)
        return
    yield from (f"-{line}" for line in old)
    yield from (f"+{line}" for line in new)


def _span(start: int, stop: int) -> str:
    """Return lines as a hunk's heading has them: from 1, and of none those that are before."""
    count = stop - start
    return f"{start + 1}" if count == 1 else f"{start + (count > 0)},{count}"


def _lines(name: str, content: bytes) -> list[str]:
    """Return the lines of a file; those of a lock without the hashes, which bury its versions."""
    text = content.decode()
    return (PIP_HASH.sub("", text) if name.startswith(WRITTEN) else text).splitlines()


class _Matcher(SequenceMatcher[str]):
    """Finds the lines that two files share; in the worst case, that takes as their cube."""

    def __init__(
        self, old: Sequence[str], new: Sequence[str], late: Callable[[], bool] | None
    ) -> None:
        super().__init__(None, old, new)
        self._late = late

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> Match:
        if self._late and self._late():
            raise TooDifferent
        return super().find_longest_match(alo, ahi, blo, bhi)
