"""What jobs read as inputs: sets of files in a bucket of their own, and a folder of the machine."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from support.store.storage import CREDENTIALS

if TYPE_CHECKING:
    from pathlib import Path

    from support.store.storage import Bucket

SETS, FILES, FILE_BYTES = 3, 4, 500_000
# Room for two of the sets: the third one evicts another.
ROOM_MB = 5
OFFERED = "set"


@dataclass(frozen=True)
class JobInputs:
    """The folder that workers offer, and the bucket with the sets."""

    folder: Path
    bucket: str

    def settings(self, endpoint: str) -> dict[str, object]:
        """Return a worker's settings; it reads the bucket through an endpoint."""
        secrets = self.folder / f"secrets-{endpoint.rpartition(':')[2]}"
        if not secrets.exists():
            secrets.mkdir(mode=0o700)
            for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": endpoint}.items():
                (secrets / name).write_text(value, encoding="utf-8")
                (secrets / name).chmod(0o600)
        return {
            "secrets_dir": secrets,
            "inputs_mb": ROOM_MB,
            "offer_folders": f"{OFFERED}={self.folder / OFFERED}",
        }


def job_inputs(folder: Path, bucket: Bucket) -> JobInputs:
    """Write the sets, each with the digests of its files, and the folder."""
    (folder / OFFERED).mkdir(parents=True)
    (folder / OFFERED / "one").write_text("1\n", encoding="utf-8")
    for number in range(SETS):
        sums = ""
        for name in (f"part-{n}" for n in range(FILES)):
            data = os.urandom(FILE_BYTES)
            sums += f"{hashlib.sha256(data).hexdigest()}  {name}\n"
            bucket.client.put_object(Bucket=bucket.name, Key=f"{number}/{name}", Body=data)
        bucket.client.put_object(Bucket=bucket.name, Key=f"{number}/sums", Body=sums.encode())
    return JobInputs(folder, bucket.name)
