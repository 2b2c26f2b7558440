"""A process of its own that renders a job's file: JSON indented, or the first rows of Parquet.

A job may have made the file to fill the reader's memory, to occupy it, or to crash it. So the
process has limits on its memory and time, nothing in its environment, and its output is read up to
a limit. Two of them run at a time.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import BytesIO
from threading import BoundedSemaphore, Timer
from typing import Any

SECONDS = 10
MEMORY = 2 << 30
# Of what is shown, before it is escaped.
MOST_BYTES = 1 << 20
# As long as two others may take.
PATIENCE_S = 2 * SECONDS
NOBODY = 65534
# More than is shown of a cell.
CELL = 400

_turns = BoundedSemaphore(2)


class Busy(Exception):
    """Others are being rendered."""


def parquet_head(data: Iterable[bytes], rows: int, columns: int) -> dict[str, Any] | None:
    """Return the `names`, the first `rows` and their number in `all`; None if it cannot be read.

    Raises:
        Busy: try again later.
    """
    head: dict[str, Any] | None = _rendered("parquet", data, rows, columns)
    return head


def indented(data: bytes, most: int) -> str | None:
    """Return a JSON text with indentation; None if it is not JSON, or would be too long.

    Raises:
        Busy: try again later.
    """
    text: str | None = _rendered("json", [data], most)
    return text


def _rendered(kind: str, data: Iterable[bytes], *limits: int) -> Any:  # noqa: ANN401 - any JSON
    if not _turns.acquire(timeout=PATIENCE_S):
        raise Busy
    try:
        output = _output([sys.executable, "-I", __file__, kind, *map(str, limits)], data)
    finally:
        _turns.release()
    try:
        return json.loads(output) if len(output) <= MOST_BYTES else None
    except ValueError:
        return None


def _output(command: list[str], data: Iterable[bytes]) -> bytes:
    with subprocess.Popen(  # noqa: S603 - ours
        command,
        env={},
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as child:
        assert child.stdin is not None  # noqa: S101 - it was started with pipes
        assert child.stdout is not None  # noqa: S101 - as above
        late = Timer(SECONDS, child.kill)
        late.start()
        try:
            # It reads everything before it writes.
            with suppress(BrokenPipeError), child.stdin:
                for piece in data:
                    child.stdin.write(piece)
            output = child.stdout.read(MOST_BYTES + 1)
        finally:
            late.cancel()
            child.kill()
    return output


def main() -> None:
    """Render what comes on stdin."""
    kind, *limits = sys.argv[1], *map(int, sys.argv[2:])
    if kind == "parquet":
        import pyarrow.parquet  # noqa: F401, PLC0415 - only with the extra, and before the limits
    _confine()
    data = sys.stdin.buffer.read()
    result = _parquet(data, *limits) if kind == "parquet" else _json(data, *limits)
    json.dump(result, sys.stdout)


def _confine() -> None:
    # Whatever the server does is more urgent.
    os.nice(19)
    for limit, most in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_FSIZE, 0),
    ):
        resource.setrlimit(limit, (most, most))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def _parquet(data: bytes, most: int, columns: int) -> dict[str, Any]:
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    file = pq.ParquetFile(BytesIO(data))
    names = file.schema_arrow.names[:columns]
    batch = next(file.iter_batches(batch_size=most, columns=names, use_threads=False), None)
    rows = [[_cell(value) for value in row.values()] for row in batch.to_pylist()] if batch else []
    return {"names": names, "rows": rows, "all": file.metadata.num_rows}


def _cell(value: object) -> str:
    return "" if value is None else str(value)[:CELL]


def _json(data: bytes, most: int) -> str | None:
    encoder = json.JSONEncoder(indent=2, ensure_ascii=False)
    try:
        return _within(encoder.iterencode(json.loads(data)), most)
    except (ValueError, RecursionError):
        return None


def _within(pieces: Iterator[str], most: int) -> str | None:
    """Join what is encoded. Deep nesting makes the indentation far larger than the text."""
    text, length = [], 0
    for piece in pieces:
        text.append(piece)
        length += len(piece)
        if length > most:
            return None
    return "".join(text)


if __name__ == "__main__":
    main()
