"""A job that is killed while it rewrites its only file goes on from what it saved before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from support.workers.worker import Bed

# The first attempt saves, waits until that is stored, and dies in the middle of the next save.
SAVES_IN_PLACE = """
import os, pathlib, signal, sys, threading
folder = pathlib.Path(os.environ["FORGE_CHECKPOINT_DIR"])
state, log = folder / "state.bin", folder / "events.log"
attempt = int(os.environ["FORGE_ATTEMPT"])
with log.open("a") as lines:
    print("attempt", attempt, file=lines)
if state.exists():
    saved = state.read_bytes()
    if len(saved) != 8:
        state.write_bytes(saved[:2])
        sys.exit("EOFError: half of a file")
    print("resumed with", saved.decode(), "in attempt", attempt)
    sys.exit(0)
state.write_bytes(b"step-001")
pathlib.Path(os.environ["FORGE_CHECKPOINT_FILE"]).touch()
while not pathlib.Path(sys.argv[1]).exists():
    threading.Event().wait(0.05)
state.write_bytes(b"step")
# It looks as if it had gone on to something else, so the file is not taken for half of one.
folder.joinpath("unfinished").write_bytes(b"")
folder.joinpath("unfinished").rename(folder / "finished")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_half_written_newest_checkpoint_is_not_the_end(process: Bed, tmp_path: Path) -> None:
    process.worker()
    stored = tmp_path / "stored"
    job = process.script(SAVES_IN_PLACE, str(stored), max_failures=1, backoff_s=0)
    eventually(lambda: process.jobs.checkpoints(job))
    stored.touch()
    process.succeeds(job)
    assert process.reasons(job) == ["exit_code", "exit_code", "succeeded"]
    said = process.log(job, 3).decode()
    assert "resumed with step-001 in attempt 3" in said
    (line,) = [line for line in said.splitlines() if "starts from checkpoint" in line]
    assert "attempt 2 failed soon after it had begun with checkpoint 1." in line
