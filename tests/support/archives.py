"""Hand-made archives, so that a test can get one detail wrong at a time."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING

from forge_schema import zstd

if TYPE_CHECKING:
    from collections.abc import Iterable

Member = tuple[tarfile.TarInfo, bytes]


def member(name: str, content: bytes = b"", **fields: object) -> Member:
    """Describe one entry; `fields` are those of TarInfo."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def folder(name: str) -> Member:
    """Describe a folder."""
    return member(name, type=tarfile.DIRTYPE, mode=0o755)


def tar(
    members: Iterable[Member],
    *,
    format: int = tarfile.PAX_FORMAT,  # noqa: A002  tarfile's word
) -> bytes:
    """Return an archive, uncompressed."""
    out = io.BytesIO()
    with tarfile.open(mode="w", fileobj=out, format=format, encoding="utf-8") as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def compressed(data: bytes) -> bytes:
    """Return the archive as one zstd frame with a checksum."""
    return zstd.frame(data)


def archive(*members: Member) -> bytes:
    """Return a tar.zst."""
    return compressed(tar(members))


def with_header(block: bytes, **fields: tuple[int, bytes]) -> bytes:
    """Overwrite parts of a 512-byte header, given as (offset, bytes), and fix its checksum."""
    changed = bytearray(block)
    for offset, value in fields.values():
        changed[offset : offset + len(value)] = value
    changed[148:156] = b" " * 8
    changed[148:156] = b"%06o\0 " % sum(changed)
    return bytes(changed)
