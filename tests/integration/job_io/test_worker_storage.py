"""A worker's reads from and writes to the store, with a malicious job."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from typing import TYPE_CHECKING

import pytest
from forge_schema.storage import keys
from support.archives import archive, member
from support.http.server_process import server_process
from support.workers.worker import Bed, bed

if TYPE_CHECKING:
    from pathlib import Path

    from support.waiting import Eventually

HUSH = "nothing of this may leave"
ODD_NAMES = [b"plain", b"sub/deep/er", "ü ✓".encode(), b"\xff\xfe.bin", b"new\nline", b"x" * 255]
ODD_NAMES += [b"-rf", b"back\\slash", b" ", b".hidden", b"sub/.forge-tmp"]
WRITES_ODD_NAMES = """
import os, sys
os.chdir(os.environb[b"FORGE_OUTPUT_DIR"])
for name in map(bytes.fromhex, sys.argv[1:]):
    os.makedirs(os.path.dirname(name) or b".", exist_ok=True)
    with open(name, "wb") as file:
        file.write(name)
os.mkdir("empty")
os.mkfifo("pipe")
os.link("plain", "twin")
"""
# Links to a file and to a folder outside, in every place where the agent reads or writes.
LAYS_LINKS = """
import os, sys
outside = sys.argv[1]
for name in ("OUTPUT", "CHECKPOINT"):
    os.chdir(os.environ[f"FORGE_{name}_DIR"])
    os.symlink(os.path.join(outside, "secret"), "file")
    os.symlink(outside, "folder")
    os.symlink("/etc", "etc")
    os.symlink("/no/such/place", "dangling")
    os.symlink(".", "self")
    with open("own", "w") as file:
        file.write("mine")
os.symlink(os.path.join(outside, "metrics"), os.environ["FORGE_METRICS_FILE"])
os.symlink(os.path.join(outside, "made"), os.environ["FORGE_PREEMPT_FILE"])
print("up", flush=True)
import signal
signal.pause()
"""
WAITS = """
import os, pathlib, threading
pathlib.Path(os.environ["FORGE_OUTPUT_DIR"], "result").write_text("good")
print("up", flush=True)
while not pathlib.Path("go").exists():
    threading.Event().wait(0.05)
print("end", flush=True)
"""

REWRITES = """
import os, pathlib, threading
folder = pathlib.Path(os.environ["FORGE_CHECKPOINT_DIR"])
log = (folder / "train.log").open("a")
step = 0
while not pathlib.Path("go").exists():
    step += 1
    # In place, as torch.save does it, and slowly.
    with (folder / "model.pt").open("wb") as model:
        for _ in range(20):
            model.write(step.to_bytes(4, "big") * 10_000)
            model.flush()
            print(step, file=log, flush=True)
            threading.Event().wait(0.005)
    for _ in range(20):
        print(step, file=log, flush=True)
        threading.Event().wait(0.02)
"""
SAVES_LAST = """
import os, pathlib, threading
pathlib.Path(os.environ["FORGE_OUTPUT_DIR"], "result").write_text("good")
print("up", flush=True)
while not pathlib.Path("go").exists():
    threading.Event().wait(0.05)
pathlib.Path(os.environ["FORGE_CHECKPOINT_DIR"], "model").write_text("last")
"""

READS = """
import os, sys
for pid in sys.argv[1:]:
    for name in "environ", "mem", "maps", "fd/0", "cwd":
        place = f"/proc/{pid}/{name}"
        try:
            os.readlink(place) if name in ("fd/0", "cwd") else open(place, "rb").close()
            print(name, "was opened")
        except PermissionError:
            print(name, "is closed")
"""


def project(root: Path, **files: str) -> Path:
    folder = root / "project"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(content)
    return folder


def test_artifacts_of_every_name_are_stored(both: Bed) -> None:
    both.worker()
    job = both.script(WRITES_ODD_NAMES, *(name.hex() for name in ODD_NAMES))
    both.succeeds(job)
    expected = {name.decode(errors="backslashreplace"): name for name in [*ODD_NAMES, b"twin"]}
    assert both.artifacts(job) == expected | {"twin": b"plain"}


def test_links_out_of_a_jobs_folders_are_not_followed(both: Bed, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("secret", "metrics"):
        (outside / name).write_text(json.dumps({"step": HUSH}) + "\n")
    both.worker()
    job = both.script(LAYS_LINKS, str(outside), timeout_s=6, grace_s=1)
    both.says(job, "up")
    assert both.ended(job)["reason"] == "timeout"
    # The link that stays inside is kept, as what it says.
    assert both.artifacts(job) == {"own": b"mine", "self": b"."}
    row = both.database.row("latest_checkpoint", job_id=job)
    assert row is not None
    manifest = json.loads(both.store.get(row["key"]))
    assert [entry["path"] for entry in manifest["files"]] == ["own"]
    assert manifest["links"] == [{"path": "self", "target": "."}]
    assert both.jobs.metrics(job) == []
    assert sorted(path.name for path in outside.iterdir()) == ["metrics", "secret"]
    stored = b"".join(both.store.get(found.key) for found in both.store.list(""))
    assert HUSH.encode() not in stored


def test_damaged_bundle_runs_nothing_and_is_not_tried_again(process: Bed, tmp_path: Path) -> None:
    process.worker()
    folder = project(tmp_path, **{"train.py": "print('user code')"})
    digest = process.upload(folder)
    whole = process.store.get(keys.bundle(digest))
    process.store.put(keys.bundle(digest), whole[:-1])
    job = process.submit(process.python, "train.py", bundle_digest=digest)
    row = process.ended(job)
    assert (row["state"], row["reason"]) == ("failed", "bundle_corrupt")
    assert process.reasons(job) == ["bundle_corrupt"]
    assert b"user code" not in process.log(job)
    assert b"damaged" in process.log(job)


def test_bundle_that_breaks_the_rules_is_not_unpacked(process: Bed) -> None:
    process.worker()
    evil = archive(member("../train.py", b"print('user code')"))
    digest = hashlib.sha256(evil).hexdigest()
    process.store.put(keys.bundle(digest), evil)
    job = process.submit(process.python, "train.py", bundle_digest=digest)
    assert process.ended(job)["reason"] == "bundle_corrupt"
    assert process.reasons(job) == ["bundle_corrupt"]


def test_bundle_that_is_missing_is_the_stores_fault(process: Bed) -> None:
    process.worker()
    job = process.submit("true", bundle_digest="0" * 64, max_losses=1)
    row = process.ended(job)
    assert (row["state"], row["reason"]) == ("dead", "storage_failed")
    assert process.reasons(job) == ["storage_failed", "storage_failed"]


def test_a_projects_links_are_links_where_it_runs(both: Bed, tmp_path: Path) -> None:
    both.worker()
    code = """
import os
print(os.readlink("last"), os.readlink("conf"), open("last").read())
open("conf/new", "w").write("x")
print(sorted(os.listdir("configs/base")))
"""
    folder = project(tmp_path, **{"train.py": code, "step-2": "two"})
    (folder / "configs" / "base").mkdir(parents=True)
    (folder / "configs" / "base" / "a.yaml").touch()
    (folder / "last").symlink_to("step-2")
    (folder / "conf").symlink_to("configs/base")
    job = both.submit(both.python, "train.py", bundle_digest=both.upload(folder))
    both.succeeds(job)
    assert b"step-2 configs/base two\n['a.yaml', 'new']\n" in both.log(job)


def test_project_is_where_the_job_starts(both: Bed, tmp_path: Path) -> None:
    both.worker()
    folder = project(tmp_path, **{"train.py": "print(open('data').read())", "data": "7"})
    jobs = [both.submit(both.python, "train.py", folder=folder) for _ in range(2)]
    for job in jobs:
        both.succeeds(job)
        assert both.log(job) == b"7\n"


def test_a_folder_of_the_project_is_the_checkpoint_folder(both: Bed, tmp_path: Path) -> None:
    (tmp_path / "project" / "runs").mkdir(parents=True)
    (tmp_path / "project" / "runs" / "count").write_text("1")
    counts = "n=$(($(cat runs/count) + 1)); echo $n > runs/new; mv runs/new runs/count; echo $n"
    both.worker()
    job = both.submit(
        *("sh", "-c", f"{counts}; test $n = 3"),
        folder=tmp_path / "project",
        checkpoint_dir="runs",
        max_failures=1,
    )
    both.succeeds(job)
    assert both.log(job) == b"2\n3\n"


def test_job_waits_for_a_store_that_is_away_at_its_end(
    process: Bed, eventually: Eventually
) -> None:
    worker = process.worker()
    job = process.script(WAITS)
    process.says(job, "up")
    store, away = process.root / "store", process.root / "away"
    store.rename(away)
    store.touch()
    next(worker.folder.glob("jobs/*/work")).joinpath("go").touch()
    eventually(lambda: process.job(job)["phase"] == "finishing")
    store.unlink()
    away.rename(store)
    process.succeeds(job)
    assert process.reasons(job) == ["succeeded"]
    assert process.log(job) == b"up\nend\n"
    assert process.artifacts(job) == {"result": b"good"}


def test_store_that_stays_away_ends_the_attempt_for_its_own_reason(process: Bed) -> None:
    worker = process.worker(store_patience_s=1)
    job = process.script(WAITS)
    process.says(job, "up")
    store, away = process.root / "store", process.root / "away"
    store.rename(away)
    store.touch()
    next(worker.folder.glob("jobs/*/work")).joinpath("go").touch()
    row = process.ended(job)
    assert (row["state"], row["reason"]) == ("dead", "storage_failed")
    assert process.leases() == 0
    store.unlink()
    away.rename(store)
    # The worker is as good as new.
    process.succeeds(process.script("print('next')"))


@pytest.mark.parametrize("kind", ["process", "docker"])
def test_job_sees_its_own_variables_and_no_secret_of_the_agents(
    kind: str, tmp_path: Path, database_url: str
) -> None:
    secrets = {"AWS_SECRET_ACCESS_KEY": HUSH, "AWS_SESSION_TOKEN": HUSH, "MY_TOKEN": HUSH}
    with bed(kind, tmp_path, database_url, environment=secrets) as made:
        made.worker()
        source = "import json, os; print(json.dumps(dict(os.environ)))"
        job = made.script(source, env={"LR": "0.1"})
        made.succeeds(job)
        seen = json.loads(made.log(job))
    ours = {name for name in seen if name.startswith("FORGE_")}
    places = {"FORGE_CHECKPOINT_DIR", "FORGE_OUTPUT_DIR", "FORGE_PREEMPT_FILE"}
    places |= {"FORGE_METRICS_FILE", "FORGE_CHECKPOINT_FILE"}
    places |= {"FORGE_RESULT_FILE", "FORGE_JUNIT_FILE"}
    words = {"FORGE_JOB_ID", "FORGE_ATTEMPT", "FORGE_DEVICE", "FORGE_BATCH_SIZE_HINT", "FORGE_RUN"}
    assert ours == places | words
    assert (seen["FORGE_JOB_ID"], seen["FORGE_ATTEMPT"]) == (str(job), "1")
    assert re.fullmatch(f"forge-[0-9a-f]{{8}}-{job}", seen["FORGE_RUN"])
    assert (seen["FORGE_DEVICE"], seen["LR"]) == ("cpu", "0.1")
    assert not [name for name in seen if name.startswith("AWS_")]
    assert HUSH not in seen.values()
    assert not [value for value in seen.values() if database_url in value]


def test_metrics_and_progress_are_kept_whatever_else_the_file_holds(
    process: Bed, eventually: Eventually
) -> None:
    process.worker()
    lines = [
        '{"step": 1, "total": 4, "loss": 0.5}',
        "no json",
        '{"step": 2, "loss": NaN, "total": 4}',
        '{"half": "\\ud800"}',
        '{"nul": "\\u0000", "loss": 0.25}',
        "[" * 60000,
        '{"big": "' + "x" * 100_000 + '"}',
        '{"step": ' + "9" * 4000 + "}",
        '{"step": 1e999}',
        '{"step": 3, "total": 4}',
    ]
    source = (
        "import os, sys, signal\n"
        "with open(os.environ['FORGE_METRICS_FILE'], 'w') as file:\n"
        "    file.write(open('lines').read() + '{\"step\": 4, \"to')\n"
        "    file.flush()\n"
        "    print('up', flush=True)\n"
        "    sys.stdin = open('go.pipe')\n"
        "    sys.stdin.read()\n"
        "    file.write('tal\": 4}' + chr(10))\n"
    )
    folder = project(process.root, lines="\n".join(lines) + "\n", **{"train.py": source})
    job = process.submit(
        "sh", "-c", f"mkfifo go.pipe; exec {sys.executable} train.py", folder=folder
    )
    eventually(lambda: process.job(job)["progress"] == pytest.approx(0.75))
    pipe = next(process.workers[0].folder.glob("jobs/*/work/go.pipe"))
    os.close(os.open(pipe, os.O_WRONLY))
    process.succeeds(job)
    kept = [row["values"] for row in process.jobs.metrics(job)]
    assert [line["step"] for line in kept if "step" in line and line.get("total")] == [1, 2, 3, 4]
    assert kept[1]["loss"] == "NaN"
    # Nor are the numbers next to a character that cannot be stored lost.
    assert kept[2:4] == [{"half": "\ufffd"}, {"nul": "\ufffd", "loss": 0.25}]
    assert len(kept) == 8


def checkpoints(bed: Bed, job: int) -> list[dict[str, bytes]]:
    """Return the files of each checkpoint by path."""
    manifests = [key for key in bed.objects(f"jobs/{job}/") if key.endswith(".json")]
    listed = [json.loads(bed.store.get(key))["files"] for key in manifests]
    return [{file["path"]: bed.store.get(file["key"]) for file in files} for files in listed]


def test_checkpoints_beside_a_log_are_stored_while_the_job_runs_and_never_torn(
    both: Bed, eventually: Eventually
) -> None:
    worker = both.worker()
    job = both.script(REWRITES, keep_checkpoints=100)
    eventually(lambda: len(both.jobs.checkpoints(job)) >= 4)
    next(worker.folder.glob("jobs/*/work")).joinpath("go").touch()
    both.succeeds(job)
    models = 0
    for files in checkpoints(both, job):
        steps = files["train.log"].split()
        assert steps == sorted(steps, key=int)
        if model := files.get("model.pt"):
            models += 1
            assert model == model[:4] * 200_000
    assert models > 0


def test_success_whose_last_checkpoint_cannot_be_stored_is_a_success(process: Bed) -> None:
    worker = process.worker(store_patience_s=1)
    job = process.script(SAVES_LAST, checkpoint_interval_s=3600, max_losses=1)
    process.says(job, "up")
    (chunk,) = process.jobs.log_chunks(job, after=(0, 0, -1))
    attempt = process.root / "store" / chunk["key"].split("/logs/")[0]
    (attempt / "checkpoints").write_text("in the way")
    next(worker.folder.glob("jobs/*/work")).joinpath("go").touch()
    process.succeeds(job)
    assert process.reasons(job) == ["succeeded"]
    assert process.artifacts(job) == {"result": b"good"}
    assert b"forge: the checkpoint could not be stored: " in process.log(job)


def test_job_cannot_read_what_its_agent_holds(process: Bed, tmp_path: Path) -> None:
    worker = process.worker()
    with server_process(tmp_path, process.database.url, process.store.url) as server:
        assert server.process is not None
        job = process.script(READS, str(worker.process.pid), str(server.process.pid))
        process.succeeds(job)
    closed = [f"{name} is closed" for name in ("environ", "mem", "maps", "fd/0", "cwd")]
    assert process.log(job).decode().splitlines() == closed * 2
