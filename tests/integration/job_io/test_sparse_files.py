"""Files larger than the space they take do not fill a worker's disk; on a real worker."""

from __future__ import annotations

from forge_schema.model.spec import Resources
from support.workers.worker import Bed

SPARSE = """
import os, signal, sys
with open(os.path.join(os.environ[sys.argv[1]], "sparse"), "wb") as file:
    file.write(b"begun")
    file.truncate(int(sys.argv[2]) << 20)
if sys.argv[3:]: signal.pause()
"""
LINKED = """
import os, pathlib, signal
folder = pathlib.Path(os.environ["FORGE_CHECKPOINT_DIR"])
(folder / "one").write_bytes(os.urandom(1 << 20))
for name in range(60): os.link(folder / "one", folder / str(name))
signal.pause()
"""
DISK = {"resources": Resources(cpus=0.5, memory_mb=256, disk_mb=50), "grace_s": 1}


def test_what_would_be_too_much_as_a_copy_ends_its_job(process: Bed) -> None:
    process.worker()
    output, checkpoint = "FORGE_OUTPUT_DIR", "FORGE_CHECKPOINT_DIR"
    refused = {
        process.script(
            SPARSE, checkpoint, "3072", "waits", **DISK
        ): "the checkpoint would be 3 GiB",
        process.script(LINKED, **DISK): "the checkpoint would be 61 MiB",
        process.script(SPARSE, output, "3072", **DISK): "the output would be 3 GiB",
    }
    small = process.script(SPARSE, output, "40", **DISK)
    for job, why in refused.items():
        row = process.ended(job)
        assert (row["state"], row["reason"]) == ("dead", "disk_full")
        assert why in row["detail"]
        assert "the job requested 50 MiB of disk" in row["detail"]
        assert why.encode() in process.log(job)
    process.succeeds(small)
    whole = process.artifacts(small)["sparse"]
    assert (len(whole), whole[:5], whole[5:].strip(b"\0")) == (40 << 20, b"begun", b"")
