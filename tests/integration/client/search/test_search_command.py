"""`forge sweep run` on a real worker, killed in the middle, and `forge sweep resume`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from support.client.command import command
from support.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from support.queue.rig import Rig
    from support.workers.worker import Bed

# Those of a large x report a loss that the pruner's limit ends, and go on until they are stopped.
TRAIN = """
import json, os, signal, sys
x = float(sys.argv[1])
loss = (x - 3) ** 2
with open(os.environ["FORGE_METRICS_FILE"], "a") as metrics:
    print(json.dumps({"step": 1, "loss": loss}), file=metrics)
if loss > 20:
    signal.pause()
with open(os.environ["FORGE_RESULT_FILE"], "w") as result:
    json.dump({"loss": loss}, result)
"""
POINTS = [9, 1, 4, 8, 2, 6]


def test_a_search_killed_in_the_middle_goes_on_where_it_was(process: Bed, tmp_path: Path) -> None:
    where = {"FORGE_DATABASE_URL": process.database.url, "FORGE_STORE_URL": process.store.url}
    forge = command(tmp_path, **where)
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(TRAIN)
    process.worker(cpus="2")
    values = ",".join(map(str, POINTS))
    ask = ("sweep", "run", project, "--metric", "loss", "--matrix", f"x={values}", "-o", "json")
    how = ("--sampler", "grid", "--pruner", "threshold,upper=20", "--parallel", "2", "--cpus", "1")
    job = ("--idempotency-key", "k", "--no-install", "--memory", "64MiB")
    program = ("--", process.python, "train.py", "{x}")
    with forge.started(*ask, *how, *job, *program) as driver:
        eventually(lambda: [one for one in process.jobs.jobs(scope=["ann"]) if one["finished_at"]])
        driver.kill()
        said = driver.communicate()[1]
    sweep = next(line for line in said.splitlines() if line.startswith("search "))
    name = sweep.split()[1].rstrip(";")
    done = forge("sweep", "resume", name[:-1], "--trials", "6", "-o", "json")
    found = json.loads(done.stdout)
    assert found["states"] == {"complete": 4, "pruned": 2}, done.stderr
    assert found["best"]["parameters"] == {"x": 4}
    assert found["best"]["value"] == 1
    again = forge(*ask, *how, *job, *program)
    assert json.loads(again.stdout) == found, again.stderr
    shown = json.loads(forge("sweep", "show", name, "-o", "json").stdout)
    assert shown["states"] == {"succeeded": 4, "cancelled": 2}
    assert sorted(one["parameters"]["x"] for one in shown["points"]) == sorted(POINTS)
    jobs = json.loads(forge("ps", f"sweep:{name}", "-o", "json").stdout)
    # As of `forge submit`: that of the folder.
    assert {job["experiment"] for job in jobs} == {"project"}


def test_a_second_process_is_told_of_the_first_and_a_wrong_name_uploads_nothing(
    rig: Rig, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    forge = command(tmp_path, FORGE_DATABASE_URL=rig.url, FORGE_STORE_URL=store.as_uri())
    (forge.cwd / "train.py").write_text(TRAIN)
    ask = ("sweep", "run", "--metric", "loss", "--range", "x=1..9", "--trials", "1")
    rest = ("--experiment", "resnet", "--no-install", "--", "true", "{x}")
    wrong = forge(*ask, "--pruner", "median,odd=1", *rest)
    assert "odd" in wrong.stderr
    assert wrong.returncode == 2
    assert not list(store.rglob("*"))
    with forge.started(*ask, *rest) as first:
        (job,) = eventually(lambda: rig.rows("SELECT experiment, sweep FROM job"))
        second = forge("sweep", "resume", job["sweep"])
        assert second.returncode == 4, second.stderr
        assert f"process {first.pid} on" in second.stderr
        first.kill()
        assert "x: whole numbers 1 to 9; write 1.0..9.0" in first.communicate()[1]
    assert job["experiment"] == "resnet"
