"""Real training frameworks, unchanged and in their own folders, are killed and go on.

They are too large for the tests' own requirements. FORGE_TEST_TORCH_BIN names a folder with the
programs of an environment that has them; `make test-launchers` makes one.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from forge_schema.model.spec import Resources
from forge_schema.storage.manifest import Manifest
from support.waiting import eventually
from support.workers.digits import checkpoints
from support.workers.worker import Bed, bed

EXAMPLES = Path(__file__).parents[3] / "examples"
BIN = os.environ.get("FORGE_TEST_TORCH_BIN", "")
PATH = {"PATH": f"{BIN}:{os.environ['PATH']}"}
KILLS = 3
# Before these, the frameworks' loggers write files of their own.
SAVED = re.compile(r"/trainer_state\.json$|\.ckpt$")
# The worker's settings for jobs are its own business; only the program's number is noted.
NOTES_ITS_NUMBER = 'echo $$ > pid.new && mv pid.new pid && exec python train.py "$@"'

pytestmark = pytest.mark.skipif(not BIN, reason="FORGE_TEST_TORCH_BIN is not set")


def curve(said: str) -> dict[int, float]:
    """Return the loss of each step or epoch; of one that was trained again, the last."""
    found = re.findall(r"^(?:step|epoch) (\d+) ([\d.e-]+)$", said, re.MULTILINE)
    return {int(number): float(loss) for number, loss in found}


def undisturbed(example: str, folder: Path, size: str) -> dict[int, float]:
    folder.mkdir()
    program = [f"{BIN}/python", str(EXAMPLES / example / "train.py"), size]
    done = subprocess.run(program, cwd=folder, capture_output=True, text=True, check=True)
    return curve(done.stdout)


def kill(made: Bed, job: int, attempt: int) -> None:
    """Kill the job's program in this attempt, once a checkpoint to resume from is stored."""

    def stored() -> bool:
        rows = [row for row in checkpoints(made, job) if row["attempt"] == attempt]
        assert rows
        newest = max(rows, key=lambda row: int(row["number"]))
        manifest = Manifest.loaded(made.store.get(newest["key"]), job_id=job)
        return any(SAVED.search(entry.path) for entry in manifest.files)

    eventually(lambda: stored() or made.job(job)["finished_at"], 600, 0.1)
    assert made.job(job)["finished_at"] is None, made.log(job).decode()
    places = made.root.glob("one/**/work/pid")
    newest = max(places, key=lambda place: place.stat().st_mtime)
    os.kill(int(newest.read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    ("example", "folder", "size"),
    [
        ("huggingface", "trainer_output", "--steps=400"),
        ("lightning", "lightning_logs", "--epochs=60"),
    ],
)
def test_losses_after_three_kills_are_those_of_an_undisturbed_run(
    tmp_path: Path, database_url: str, example: str, folder: str, size: str
) -> None:
    with bed("process", tmp_path, database_url, environment=PATH) as made:
        made.worker()
        job = made.submit(
            *("sh", "-c", NOTES_ITS_NUMBER, "sh", size),
            folder=EXAMPLES / example,
            checkpoint_dir=folder,
            max_failures=KILLS,
            resources=Resources(cpus=1, memory_mb=4096, disk_mb=1000),
        )
        for attempt in range(1, KILLS + 1):
            kill(made, job, attempt)
        made.succeeds(job, 900)
        log = made.log(job).decode()
        assert made.reasons(job) == ["exit_code"] * KILLS + ["succeeded"]
        assert log.count(f"resumed from {folder}/") == KILLS
        expected = undisturbed(example, tmp_path / "alone", size)
        assert curve(log).keys() == expected.keys()
        assert curve(log) == pytest.approx(expected, rel=1e-3)
