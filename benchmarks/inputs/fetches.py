"""One fetch of all that is below a prefix, as a process of its own: `forge` or `boto3`."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
from botocore.config import Config
from forge_schema.model.spec.inputs import source_of
from forge_worker.prepare.cache import LruFolders
from forge_worker.prepare.inputs.cache import InputCache
from forge_worker.prepare.inputs.s3 import S3Files
from support.workers.attempts import attempt_of, some_grant

BUCKET = "bucket"
# As many as boto3's own transfers have.
THREADS = 10


def with_forge(address: str, prefix: str, folder: Path) -> None:
    """Fetch it as a worker does."""
    secrets = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_ENDPOINT_URL": address}
    text = f"s3://{BUCKET}/{prefix}"
    attempt = attempt_of(some_grant(), folder / "jobs" / "1")
    cache = InputCache(LruFolders(folder / "inputs", folder / "jobs", 1 << 40), 0)
    cache.fetch(S3Files(source_of(text), secrets.get), text, attempt, "data")


def with_boto3(address: str, prefix: str, folder: Path) -> None:
    """Fetch it with `download_file`, several files at once."""
    config = Config(max_pool_connections=2 * THREADS)
    # Its credentials are in the environment.
    client = boto3.client("s3", endpoint_url=address, config=config)
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
    keys = [item["Key"] for page in pages for item in page["Contents"]]
    for parent in {Path(key).parent for key in keys}:
        (folder / parent).mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda key: client.download_file(BUCKET, key, str(folder / key)), keys))


if __name__ == "__main__":
    way, address, prefix, place = sys.argv[1:]
    act = {"forge": with_forge, "boto3": with_boto3}[way]
    act(address, prefix, Path(place))
