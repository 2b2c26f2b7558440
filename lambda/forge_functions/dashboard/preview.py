"""Show the beginning of a file that a job wrote, without trusting anything in it.

Text is escaped by the template, whatever language it is in. Images are recognised by their first
bytes, never by their names, and none of the kinds can hold a script. Nothing is parsed but CSV,
JSON and Parquet, each below a limit.
"""

import csv
from collections.abc import Generator, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from importlib.util import find_spec
from io import StringIO
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from forge_schema.database.pool import Row
from forge_schema.model.stored import in_chunks
from forge_schema.storage import Store
from forge_schema.storage.manifest import chunk_list

from forge_functions.dashboard.rendering import indented, parquet_head

# How much is read of a text; and of an image or a Parquet file, which is shown whole or not at all.
TEXT_BYTES, WHOLE_BYTES = 256 << 10, 16 << 20
ROWS, COLUMNS, CELL = 50, 40, 200
IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
PARQUET = b"PAR1"
SEPARATORS = {".csv": ",", ".tsv": "\t"}


@dataclass(frozen=True)
class Preview:
    """What is shown of a file: an image, a table, a text or, without a kind, nothing.

    It is `cut` if the file has more.
    """

    kind: str = ""
    text: str = ""
    names: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    cut: bool = False


def previewed(store: Store, file: Row) -> Preview:
    """Return what is shown of a job's artifact.

    Raises:
        ObjectMissing: the file is gone.
        Busy: others are being rendered.
    """
    size = file["bytes"]
    data = head(store, file, TEXT_BYTES)
    if image_type(data):
        return Preview("image") if size <= WHOLE_BYTES else Preview()
    if data.startswith(PARQUET):
        return _parquet(content(store, file)) if size <= WHOLE_BYTES else Preview()
    text = _text(data, whole=len(data) == size)
    if text is None:
        return Preview()
    cut, suffix = len(data) < size, PurePosixPath(file["path"]).suffix.lower()
    if suffix in SEPARATORS:
        return _table(csv.reader(StringIO(text), delimiter=SEPARATORS[suffix]), cut=cut)
    if suffix == ".json" and not cut:
        text = indented(data, TEXT_BYTES) or text
    return Preview("text", text, cut=cut)


def head(store: Store, file: Row, most: int) -> bytes:
    """Return the first bytes of an artifact, also of one in chunks."""
    data = bytearray()
    with closing(content(store, file)) as pieces:
        for piece in pieces:
            data += piece
            if len(data) >= most:
                break
    return bytes(data[:most])


def content(store: Store, file: Row) -> Generator[bytes, None, None]:
    """Yield the content of an artifact in pieces, also of one in chunks, up to its size."""
    keys = chunk_list(store, file["key"]).objects if in_chunks(file["key"]) else (file["key"],)
    left = file["bytes"]
    for key in keys:
        with closing(store.stream(key)) as pieces:
            for piece in pieces:
                yield piece[:left]
                left -= len(piece)
                if left <= 0:
                    return


def image_type(data: bytes) -> str | None:
    """Return the media type of an image that browsers show without executing anything."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in IMAGES.items() if data.startswith(magic)), None)


def _text(data: bytes, *, whole: bool) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The last character may be cut.
        cut = not whole and error.start > len(data) - 4
        return data[: error.start].decode("utf-8-sig") if cut else None


def _table(rows: Iterable[list[Any]], *, cut: bool) -> Preview:
    try:
        table = [[_cell(value) for value in row[:COLUMNS]] for row in islice(rows, ROWS + 2)]
    except csv.Error:
        return Preview()
    if cut and len(table) < ROWS + 2:
        # What was read ends within a row.
        table = table[:-1]
    return Preview(
        "table",
        "",
        table[0] if table else [],
        table[1 : ROWS + 1],
        cut=cut or len(table) > ROWS + 1,
    )


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= CELL else f"{text[:CELL]}…"


def _parquet(data: Iterable[bytes]) -> Preview:
    head_of_file = parquet_head(data, ROWS, COLUMNS) if find_spec("pyarrow") else None
    if head_of_file is None:
        return Preview()
    shown = _table([head_of_file["names"], *head_of_file["rows"]], cut=False)
    return Preview(
        "table", "", shown.names, shown.rows, cut=head_of_file["all"] > len(head_of_file["rows"])
    )
