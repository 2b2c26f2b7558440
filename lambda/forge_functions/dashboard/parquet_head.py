"""A process of its own that reads the first rows of a Parquet file, from stdin, and writes JSON.

A job may have made the file to fill the reader's memory, or to crash it.
"""

import json
import resource
import subprocess
import sys
from io import BytesIO
from typing import Any

SECONDS = 10
MEMORY = 2 << 30


def parquet_head(data: bytes, rows: int, columns: int) -> dict[str, Any] | None:
    """Return the `names`, the first `rows` and their number in `all`; None if it cannot be read."""
    command = [sys.executable, "-m", __name__, str(rows), str(columns)]
    try:
        done = subprocess.run(  # noqa: S603 - ours
            command, input=data, capture_output=True, timeout=SECONDS, check=True
        )
        told: dict[str, Any] = json.loads(done.stdout)
    except (subprocess.SubprocessError, ValueError):
        return None
    return told


def main() -> None:
    """Read the file."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - only with the extra, and only in this process

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    most, columns = map(int, sys.argv[1:])
    file = pq.ParquetFile(BytesIO(sys.stdin.buffer.read()))
    names = file.schema_arrow.names[:columns]
    batch = next(file.iter_batches(batch_size=most, columns=names, use_threads=False), None)
    rows = [list(row.values()) for row in batch.to_pylist()] if batch else []
    json.dump(
        {"names": names, "rows": rows, "all": file.metadata.num_rows}, sys.stdout, default=str
    )


if __name__ == "__main__":
    main()
