"""Test jobs, results and the operator's handlers, from `forge` through a worker to what is read."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError
from support.client.command import command
from support.workers.worker import Bed

if TYPE_CHECKING:
    from pathlib import Path

HANDLERS = """
import os, pathlib, threading

def measure(arguments, context):
    (context.output / "seen").write_text(context.env.get("MINE", ""))
    found = {"env": os.environ.get("MINE"), "work": str(context.work), "job": context.job_id}
    return {**arguments, **found}

def breaks(arguments, context):
    raise RuntimeError("no such luck")

def waits(arguments, context):
    print("waiting", flush=True)
    while not context.should_stop():
        threading.Event().wait(0.05)
    print("asked to stop", flush=True)
    return {"stopped": True}

def odd(arguments, context):
    return [1]
"""
POINTS = "[forge.handlers]\n" + "".join(
    f"{name} = demo_handlers:{name}\n" for name in ("measure", "breaks", "waits", "odd", "no way")
)
TESTS = """
import pytest

def test_good(): pass

@pytest.mark.parametrize("n", [1, 2])
def test_number(n): assert n == 1

def test_skipped(): pytest.skip("no GPU")
"""
# What a hostile job puts in place of its report and its result.
HOSTILE = """
import os, pathlib, sys
result, report = (pathlib.Path(os.environ[f"FORGE_{name}_FILE"]) for name in ("RESULT", "JUNIT"))
match sys.argv[1]:
    case "links":
        result.symlink_to("/etc/hostname")
        report.symlink_to("/etc/passwd")
    case "pipes":
        os.mkfifo(result)
        os.mkfifo(report)
    case "lies":
        result.write_text("[1]")
        report.write_text('<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>')
    case "late":
        result.write_text('{"n": 1}')
        report.write_text('<s><testcase name="t"/></s>')
        raise SystemExit(4)
"""


@pytest.fixture
def handlers(tmp_path: Path) -> dict[str, str]:
    """Install handlers, and return the environment of a worker that has them."""
    place = tmp_path / "packages"
    about = place / "demo_handlers-1.0.dist-info"
    about.mkdir(parents=True)
    (place / "demo_handlers.py").write_text(HANDLERS)
    (about / "entry_points.txt").write_text(POINTS)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: demo-handlers\nVersion: 1.0\n")
    return {"PYTHONPATH": str(place)}


def said(bed: Bed, job_id: int) -> Any:  # noqa: ANN401  whatever JSON holds
    return (bed.jobs.result(job_id) or {}).get("values")


def verdicts(bed: Bed, job_id: int) -> dict[str, str]:
    return {row["name"]: row["verdict"] for row in bed.jobs.tests(job_id)}


def test_tests_are_followed_and_each_is_kept(process: Bed, tmp_path: Path) -> None:
    forge = command(
        tmp_path, FORGE_DATABASE_URL=process.database.url, FORGE_STORE_URL=process.store.url
    )
    project = tmp_path / "project"
    project.mkdir()
    (project / "test_it.py").write_text(TESTS)
    (project / "old.xml").write_text('<s><testcase name="old"/></s>')
    process.worker()
    program = f"{sys.executable} -m pytest -q -p no:cacheprovider"
    done = forge("test", project, "--cpus", "0.5", "--memory", "256MB", "--with", program,
                 "-o", "json", "--", "-k", "not skipped")  # fmt: skip
    assert (done.returncode, "1 failed, 2 passed" in done.stderr) == (1, True), done.stderr
    assert json.loads(done.stdout)["job"]["exit_code"] == 1
    assert "2 passed, 1 failed; `forge tests 1`" in done.stderr
    failed = json.loads(forge("tests", "1", "--failed", "-o", "json").stdout)
    assert [(row["name"], row["verdict"]) for row in failed] == [("test_number[2]", "failed")]
    assert "assert 2 == 1" in failed[0]["message"]
    assert failed[0]["suite"].endswith("test_it")
    named = process.submit(
        sys.executable, "-m", "pytest", "-q", folder=project, kind="test", junit="old.xml",
        env={"PYTEST_ADDOPTS": "-k skipped -p no:cacheprovider"},
    )  # fmt: skip
    stale = process.submit("true", folder=project, kind="test", junit="old.xml")
    ways = ("links", "pipes", "lies", "late")
    other = {way: process.script(HOSTILE, way, kind="test") for way in ways}
    process.succeeds(named)
    assert verdicts(process, named) == {"test_skipped": "skipped"}
    process.succeeds(stale)
    assert (verdicts(process, stale), b"there is no file old.xml" in process.log(stale)) == (
        {},
        True,
    )
    for way in ("links", "pipes", "lies"):
        process.succeeds(other[way])
        assert (verdicts(process, other[way]), said(process, other[way])) == ({}, None)
    log = process.log(other["lies"])
    assert b"document type" in log
    assert b"the result was not stored" in log
    late = process.ended(other["late"])
    assert (late["exit_code"], said(process, other["late"])) == (4, {"n": 1})
    assert verdicts(process, other["late"]) == {"t": "passed"}
    assert json.loads(forge("result", str(other["late"]), "-o", "json").stdout) == {"n": 1}
    assert forge("result", str(other["lies"])).returncode == 3
    again = forge("rerun", str(other["late"]), "--wait", "-o", "json")
    assert (again.returncode, json.loads(again.stdout)["result"]) == (4, {"n": 1}), again.stderr
    # What a variable says of new jobs changes nothing in an old one.
    env = {"FORGE_QUEUE": "other", "FORGE_EXPERIMENT": "other"}
    words = ("rerun", str(other["late"]), "--name", "changed", "-o", "json", "--", "true")
    changed = json.loads(forge(*words, **env).stdout)
    assert (changed["name"], changed["queue"]) == ("changed", "default")
    assert changed["spec"]["command"] == ["true"]
    assert changed["experiment"] != "other"


def test_the_operators_handlers_run_without_leave_for_processes(
    process: Bed, tmp_path: Path, handlers: dict[str, str]
) -> None:
    forge = command(
        tmp_path, FORGE_DATABASE_URL=process.database.url, FORGE_STORE_URL=process.store.url
    )
    evil = tmp_path / "evil"
    evil.mkdir()
    for name in ("json", "demo_handlers", "sitecustomize", "signal"):
        (evil / f"{name}.py").write_text("print('EVIL', flush=True)\nraise SystemExit(9)\n")
    # Where an engine is, only root can keep containers from the cloud's metadata.
    exposed = {"FORGE_ALLOW_METADATA": str(os.geteuid() != 0)}
    process.environment = {
        **handlers, **exposed, "FORGE_RUNNER": "auto", "FORGE_ALLOW_PROCESSES": "false",
    }  # fmt: skip
    worker = process.worker()
    given = ("--arg", "size=[1, 2]", "--arg", "word=a b", "--env", "MINE=x")
    mischief = ("--folder", evil, "--env", f"PYTHONPATH={evil}")
    needs = ("--cpus", "0.5", "--memory", "256MB")
    done = forge("run-handler", "measure", "--wait", *given, *mischief, *needs)
    assert (done.returncode, "EVIL" in done.stdout) == (0, False), done.stdout + done.stderr
    found = said(process, 1)
    assert (found["size"], found["word"], found["env"], found["job"]) == ([1, 2], "a b", None, 1)
    assert found["work"].startswith(str(worker.folder))
    assert process.artifacts(1) == {"seen": b"x"}
    shown = json.loads(forge("worker", "list", "-o", "json").stdout)
    assert shown[0]["labels"]["forge.handlers"] == ",breaks,measure,odd,waits,"
    breaks, odd, waits, absent = (
        process.submit("x", kind="custom", handler=name)
        for name in ("breaks", "odd", "waits", "absent")
    )
    assert process.ended(breaks)["exit_code"] == 1
    assert b"no such luck" in process.log(breaks)
    assert b"Traceback" in process.log(breaks)
    assert process.ended(odd)["exit_code"] == 1
    assert b"must return a dict or None" in process.log(odd)
    process.says(waits, "waiting")
    process.queue.cancel(waits)
    assert process.ended(waits)["state"] == "cancelled"
    assert b"asked to stop" in process.log(waits)
    assert said(process, waits) == {"stopped": True}
    assert process.job(absent)["state"] == "ready"
    wrong = ({"requirements": "r.txt"}, {"image": "x"}, {"handler": None}, {"kind": "test"})
    for more in wrong:
        changed: dict[str, Any] = {"kind": "custom", "handler": "measure", **more}
        with pytest.raises(ValidationError):
            process.submit("x", **changed)
    process.queue.cancel(absent)


def test_a_benchmark_is_submitted_shown_compared_and_cancelled(
    process: Bed, tmp_path: Path
) -> None:
    forge = command(
        tmp_path, FORGE_DATABASE_URL=process.database.url, FORGE_STORE_URL=process.store.url
    )
    project = tmp_path / "bench"
    project.mkdir()
    (project / "bench.py").write_text(
        "import json, os, sys\n"
        "asked = json.loads(os.environ['FORGE_PARAMETERS'])\n"
        "found = {'ms': int(sys.argv[1]) * 2.0, 'asked': asked,"
        " 'experiment': os.environ['FORGE_EXPERIMENT']}\n"
        "open(os.environ['FORGE_RESULT_FILE'], 'w').write(json.dumps(found))\n"
    )
    (project / "forge.toml").write_text(
        "resources = {cpus = 0.5, memory = '128MB'}\nrepeat = 2\n[matrix]\nbatch = [1, 4]\n"
    )
    ask = ("benchmark", project, "--idempotency-key", "k", "-o", "json", "--", sys.executable,
           "bench.py", "{batch}")  # fmt: skip
    first, again = forge(*ask), forge(*ask)
    assert first.returncode == 0, first.stderr
    assert first.stdout == again.stdout
    answer = json.loads(first.stdout)
    assert (len(answer["job_ids"]), process.jobs.job(1)["name"]) == (4, "bench batch=1 repeat=1")
    process.worker()
    for job_id in answer["job_ids"]:
        process.succeeds(job_id)
    shown = json.loads(forge("sweep", "show", answer["sweep"], "-o", "json").stdout)
    assert shown["states"] == {"succeeded": 4}
    assert [(p["parameters"], p["result"]["ms"]) for p in shown["points"]] == [
        ({"batch": batch, "repeat": turn}, batch * 2.0) for batch in (1, 4) for turn in (1, 2)
    ]
    assert all(point["result"]["asked"] == point["parameters"] for point in shown["points"])
    assert {point["result"]["experiment"] for point in shown["points"]} == {"bench"}
    found = forge("ps", "experiment:ben*", "-o", "json")
    assert {job["experiment"] for job in json.loads(found.stdout)} == {"bench"}
    compared = forge("sweep", "compare", answer["sweep"], "--metric", "ms", "--by", "batch")
    assert "ms of each job. Other metrics: seconds, gpu_seconds" in compared.stderr
    assert "result.ms" not in compared.stderr
    titles = forge("sweep", "show", answer["sweep"]).stdout.split("\n")[0].split()
    assert titles == [
        *("JOB", "STATE", "batch", "repeat"),
        *("result.ms", "result.asked", "result.experiment", "SECONDS"),
    ]
    table = compared.stdout.split("\n")
    assert [line.split() for line in table[1:3]] == [
        ["batch=1", "2", "2", "2", "0", "baseline"],
        ["batch=4", "2", "8", "8", "0", "+6", "+300.0%"],
    ]
    assert "the baseline is batch=1\n" in compared.stderr
    wrong = forge("benchmark", project, "--", "run", "{bach}")
    assert (wrong.returncode, "{bach}" in wrong.stderr) == (2, True)
    waits = forge("benchmark", project, "--label", "zone=none", "--", "run", "{batch}")
    sweep = waits.stdout.strip()
    assert sweep.startswith("bench-")
    assert sweep != answer["sweep"]
    assert "would match 4 jobs" in forge("ps", f"sweep:{sweep[:-1]}").stderr
    gone = forge("cancel", "--sweep", sweep[:-1])
    assert (gone.returncode, "4 jobs to cancel" in gone.stderr) == (2, True)
    gone = forge("cancel", "--sweep", sweep[:-1], "--yes")
    assert gone.returncode == 0, gone.stderr
    assert "4 cancelled, 0 asked to stop" in gone.stderr
    assert forge("cancel").returncode == 2
