"""What is sent to a store: a packed folder, a saved image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from forge_schema.model.stored import Segment

Progress: TypeAlias = Callable[[int], None]
"""Called with the bytes moved since the last call."""


@dataclass(frozen=True)
class Bundle:
    """A packed folder; sizes in bytes.

    It is the file at `path`, whose SHA-256 is the `digest`. A large one is in `segments`: files in
    the folder `path`, each named by its SHA-256; the `digest` is that of their list. One that was
    packed before has no file.
    """

    digest: str
    path: Path
    size: int
    unpacked_size: int
    files: int
    segments: tuple[Segment, ...] = ()


@dataclass(frozen=True)
class ImageTar:
    """A saved image at `path`: the file's SHA-256, and its size in bytes."""

    digest: str
    path: Path
    size: int
