"""Projects with requirements of their own: installed once, side by side, and never half."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from typing import Any

import pytest
from forge_schema.model.spec import Resources
from support import trees
from support.wheels import project, wheel
from support.workers.worker import Bed

INSTALLING = b"forge: installing the requirements in requirements.txt"


def environments(bed: Bed) -> list[str]:
    return [p.name for p in bed.workers[0].folder.glob("envs/*") if not p.name.startswith(".")]


def test_conflicting_projects_run_side_by_side_and_install_once(both: Bed) -> None:
    both.worker()
    folders = [project(both.root / f"p{n}", "conflicted", f"{n}.0") for n in (1, 2)]

    def run_both() -> list[bytes]:
        jobs = [
            both.submit("python", "main.py", folder=folder, requirements="requirements.txt")
            for folder in folders
        ]
        for job in jobs:
            both.succeeds(job)
        return [both.log(job) for job in jobs]

    for log, version in zip(run_both(), (b"1.0", b"2.0"), strict=True):
        assert INSTALLING in log
        assert b"Successfully installed conflicted-" + version in log
        assert b"has " + version in log
    for log, version in zip(run_both(), (b"1.0", b"2.0"), strict=True):
        assert b"has " + version in log
        assert INSTALLING not in log
        assert b"Collecting" not in log
    assert len(environments(both)) == 2
    # The bundles and the environments, and in Docker no image, since the job names none.
    assert len(list((both.workers[0].folder / "warm").iterdir())) == 4


OWN: dict[str, bytes | str | None] = {
    "pyproject.toml": (
        b"[project]\nname = 'my-app'\nversion = '1.2'\nscripts = {my-train = 'app.run:Run.main'}\n"
    ),
    "src/app/run.py": (
        b"import sys, locked\nfrom importlib.metadata import version\nclass Run:\n"
        b"  main = lambda: print('my-app', version('my-app'), 'on', locked.VERSION, 'with',"
        b" sys.argv[1:], flush=True)\n"
    ),
    "conf.py": b"NAME = 'root'\n",
    "tools/x.py": b"import conf\nprint(conf.NAME)\n",
}


def test_a_lock_is_installed_by_uv_and_a_missing_module_is_named(both: Bed) -> None:
    both.worker()
    folder = project(both.root / "p", "locked", "1.0")
    lock = "# python 3.11\n--no-index\n--find-links wheels\nlocked==1.0\n"
    (folder / ".forge-lock.txt").write_text(lock, encoding="utf-8")
    (folder / "more.py").write_text("import nosuchmodule\n", encoding="utf-8")
    listed: dict[str, Any] = {"folder": folder, "requirements": ".forge-lock.txt"}
    job = both.submit("python", "main.py", **listed)
    both.succeeds(job)
    log = both.log(job)
    assert b"+ locked==1.0" in log
    assert b"has 1.0" in log
    shown = {"source": "uv.lock", "packages": 1}
    row = both.ended(both.submit("python", "more.py", **listed, environment=shown))
    assert row["detail"].startswith(
        "ModuleNotFoundError: No module named 'nosuchmodule'; nosuchmodule is not in uv.lock:"
        " `uv add nosuchmodule` and submit again\n"
    )
    # It is recognised as an end that a retry would repeat.
    assert (row["state"], row["attempt"]) == ("failed", 1)
    assert b"forge: nosuchmodule is not in uv.lock" in both.log(row["job_id"])
    # The project itself is not installed, and used as if it were, wherever a program is.
    trees.write(folder, OWN)
    job = both.submit("sh", "-c", "my-train --lr 1 && cd / && python3 $OLDPWD/tools/x.py", **listed)
    both.succeeds(job)
    assert both.log(job).endswith(b"my-app 1.2 on 1.0 with ['--lr', '1']\nroot\n")


def test_the_first_python_of_a_range_that_is_there_is_taken(process: Bed) -> None:
    process.worker()
    own = f"3.{sys.version_info.minor}"
    heads = {
        "none": "3.98 3.99 (>=3.98)",
        "own": f"3.98 {own} (any)",
        "beside": "3.98 3.97 (<3.99)",
    }
    beside = process.root / "bin" / "python3.97"
    beside.parent.mkdir()
    # It says that it is another, and runs what it is given.
    beside.write_text(f"""#!/bin/sh
[ "$1" = -c ] && [ "$3" = 3.97 ] && exit
echo "taken: $1 $2"; exec {sys.executable} "$@"
""")
    beside.chmod(0o755)
    jobs = {}
    for name, head in heads.items():
        folder = process.root / name
        folder.mkdir()
        (folder / ".forge-lock.txt").write_text(f"# python {head}\n")
        env = {"PATH": f"{beside.parent}:{os.environ['PATH']}"}
        listed: dict[str, Any] = {"folder": folder, "requirements": ".forge-lock.txt", "env": env}
        jobs[name] = process.submit("true", **listed)
    for job in jobs.values():
        process.succeeds(job)
    logs = {name: process.log(job) for name, job in jobs.items()}
    assert b"the project requires Python >=3.98, and here is Python 3." in logs["none"]
    # Without packages, what the machine has is what such a project asks for.
    assert b"installing" not in logs["own"]
    assert b"taken: -m venv" in logs["beside"]


def test_an_environment_is_its_owners_and_its_contents(process: Bed) -> None:
    (process.root / "secrets").mkdir()
    (process.root / "secrets" / "PIP_FIND_LINKS").write_text("wheels\n", encoding="utf-8")
    process.worker(secrets_dir=process.root / "secrets")
    folder = project(process.root / "p", "kept_apart", "1.0")
    (folder / "pyproject.toml").write_text("[project]\ndependencies = ['kept_apart<2']\n")

    def installs(path: str, owner: str = "ann") -> bool:
        # The installation has the job's variables and its secrets.
        pip = {"env": {"PIP_NO_INDEX": "1"}, "secrets": ["PIP_FIND_LINKS"]}
        job = process.submit(
            "python", "main.py", folder=folder, requirements=path, owner=owner, **pip
        )
        process.succeeds(job)
        return b"forge: installing" in process.log(job)

    assert installs("pyproject.toml")
    (folder / "main.py").write_text("import kept_apart  # it is not part of the key\n")
    assert not installs("pyproject.toml")
    assert installs("requirements.txt")
    # Another owner's variables and secrets may have influenced the first environment.
    assert installs("pyproject.toml", owner="bob")


def test_what_cannot_be_installed_is_the_users_to_correct(process: Bed) -> None:
    process.worker()
    folder = project(process.root / "p", "absent", "1.0")
    (folder / "more.txt").write_text("absent==9\n", encoding="utf-8")
    (folder / "unknown.txt").write_text("--no-index\ntqqqdm\n", encoding="utf-8")
    (folder / "net.txt").write_text("--index-url http://127.0.0.1:1/simple\nabsent\n")
    asked = {
        "requirements.txt": "No matching distribution found for absent==9",
        "unknown.txt": "the requirement tqqqdm (from versions: none)",
        "net.txt": "the network failed, or a package index could not be reached",
        "none.txt": "the project's none.txt cannot be read: No such file",
    }
    quick = {"PIP_RETRIES": "1", "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}
    jobs = {
        path: process.submit("true", folder=folder, requirements=path, env=quick) for path in asked
    }
    for path, said in asked.items():
        row = process.ended(jobs[path])
        assert (row["reason"], said in row["detail"]) == ("exit_code", True), row["detail"]
        assert row["exit_code"] == (None if path == "none.txt" else 1)
        assert said.encode() in process.log(jobs[path])
    assert environments(process) == []


def test_a_worker_that_installs_nothing_says_so(process: Bed) -> None:
    process.worker(allow_install=False)
    folder = project(process.root / "p", "refused", "1.0")
    row = process.ended(process.submit("true", folder=folder, requirements="requirements.txt"))
    assert row["reason"] == "start_failed"
    assert "this worker does not install any" in row["detail"]


def test_an_installation_cut_short_is_made_anew(process: Bed) -> None:
    worker = process.worker()
    folder = project(process.root / "p", "cut_short", "1.0")
    (folder / "hang").mkdir()
    (folder / "hang" / "setup.py").write_text("import signal\nsignal.pause()\n")
    wheel(folder / "wheels", "setuptools", "99.0")
    (folder / "requirements.txt").write_text("--no-index\n--find-links wheels\n./hang\n")
    job = process.submit("true", folder=folder, requirements="requirements.txt", max_losses=1)
    process.says(job, "Processing ./hang")
    worker.kill()
    assert len(environments(process)) == 1
    shutil.rmtree(folder / "hang")
    process.queue.cancel(job)
    process.worker()
    process.ended(job)
    (folder / "requirements.txt").write_text("--no-index\n--find-links wheels\ncut_short\n")
    again = process.submit("python", "main.py", folder=folder, requirements="requirements.txt")
    process.succeeds(again)
    stopped = process.workers[-1]
    assert stopped.leave(signal.SIGTERM) == 0


FILLS = """
import os, signal, sys
for folder in sys.prefix, os.environ["TMPDIR"]:
    with open(os.path.join(folder, "filled"), "wb") as file:
        file.write(os.urandom(30 << 20))
signal.pause()
"""


def test_installation_that_fills_the_disk_is_ended(both: Bed) -> None:
    """Neither of the two places it writes to exceeds the limit by itself."""
    both.worker()
    folder = both.root / "p"
    (folder / "lib").mkdir(parents=True)
    (folder / "requirements.txt").write_text("--no-index\n./lib\n", encoding="utf-8")
    (folder / "lib" / "fills.py").write_text(FILLS, encoding="utf-8")
    (folder / "lib" / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "fills"\nbackend-path = ["."]\n'
    )
    job = both.submit(
        *("python", "main.py"), folder=folder, requirements="requirements.txt", max_failures=0,
        resources=Resources(cpus=0.5, memory_mb=256, disk_mb=50),
    )  # fmt: skip
    row = both.ended(job)
    assert (row["state"], row["reason"]) == ("dead", "disk_full")
    assert "50 MiB requested" in row["detail"]
    assert environments(both) == []


def test_a_damaged_environment_is_made_anew_and_the_log_says_so(process: Bed) -> None:
    process.worker()
    folder = project(process.root / "p", "mended", "1.0")

    def log() -> bytes:
        job = process.submit("python", "main.py", folder=folder, requirements="requirements.txt")
        process.succeeds(job)
        said = process.log(job)
        assert b"has 1.0 in " + str(process.workers[0].folder).encode() in said
        return said

    told = b"forge: the cached environment is damaged (missing or changed: "
    first = log()
    assert (told in first, INSTALLING in first) == (False, True)
    (env,) = environments(process)
    shutil.rmtree(process.workers[0].folder / "envs" / env / "env" / "bin")
    mended, after = log(), log()
    assert [told in said for said in (mended, after)] == [True, False]
    assert [INSTALLING in said for said in (mended, after)] == [True, False]
    assert len(environments(process)) == 1


def test_a_damaged_environment_that_a_job_uses_stays_as_it_is(process: Bed) -> None:
    worker = process.worker()
    folder = project(process.root / "p", "mended", "1.0")
    (folder / "waits.py").write_text(
        "import os, threading\nprint('up', flush=True)\n"
        "while not os.path.exists('go'):\n    threading.Event().wait(0.05)\n"
        "import sys, mended\nprint(mended.VERSION)\n"
    )
    first = process.submit("python", "waits.py", folder=folder, requirements="requirements.txt")
    process.says(first, "up")
    (env,) = environments(process)
    (worker.folder / "envs" / env / "env" / "bin" / "python3").unlink()
    other = process.submit("python", "main.py", folder=folder, requirements="requirements.txt")
    process.succeeds(other)
    assert b"is damaged" in process.log(other)
    assert sorted(environments(process)) == [env, f"{env}-1"]
    next(worker.folder.glob("jobs/*/work")).joinpath("go").touch()
    process.succeeds(first)


@pytest.mark.parametrize("asked", [False, True])
def test_requirements_of_a_process_are_not_met_by_the_machine_unless_asked(
    process: Bed,
    asked: bool,  # noqa: FBT001  pytest's parameter
) -> None:
    process.worker(host_packages=asked)
    folder = project(process.root / "p", "alone", "1.0")
    (folder / "main.py").write_text(
        "import sys\nprint('open' if any(p.startswith(sys.base_prefix) and 'packages' in p"
        " for p in sys.path) else 'closed')\n"
    )
    job = process.submit("python", "main.py", folder=folder, requirements="requirements.txt")
    process.succeeds(job)
    assert (b"open\n" in process.log(job)) == asked
