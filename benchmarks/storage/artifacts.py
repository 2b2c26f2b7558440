"""Many small artifacts, and the same files sent with boto3 by a number of threads."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
from botocore.config import Config
from forge_worker.job_io.artifacts import ArtifactKeeper

from benchmarks.storage.bed import LIMIT_MB, way


def small_artifacts(
    root: Path, count: int, *, over_http: bool, store_url: str | None
) -> tuple[float, float, float]:
    """Store files of 4 bytes; return the seconds, and CPU seconds of worker and server."""
    with way(root, over_http=over_http, store_url=store_url) as made:
        attempt, objects = made.attempt()
        for number in range(count):
            (attempt.folders.output / f"{number:05}").write_text("abcd")
        keeper = ArtifactKeeper(attempt, objects, made.gateway, LIMIT_MB)
        served = made.served_s
        began, busy = time.monotonic(), time.process_time()
        assert keeper.store() == count
        took, busy = time.monotonic() - began, time.process_time() - busy
        served = made.served_s - served
    return took, busy, served


def plain_puts(root: Path, count: int, *, address: str, threads: int) -> tuple[float, float, float]:
    """Store the same files with boto3's `put_object`; return as `small_artifacts`."""
    root.mkdir(parents=True)
    for number in range(count):
        (root / f"{number:05}").write_text("abcd")
    pooled = Config(max_pool_connections=threads)
    client = boto3.client("s3", endpoint_url=address, config=pooled)

    def put(path: Path) -> None:
        client.put_object(Bucket="plain", Key=path.name, Body=path.read_bytes())

    began, busy = time.monotonic(), time.process_time()
    with ThreadPoolExecutor(threads) as pool:
        assert len(list(pool.map(put, root.iterdir()))) == count
    return time.monotonic() - began, time.process_time() - busy, 0.0
