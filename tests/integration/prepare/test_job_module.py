"""`from forge_worker import job` inside of jobs, which need nothing installed for it."""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from forge_worker import job
from forge_worker.prepare.provisions import JobModuleProvision, ProjectProvision
from support.workers.attempts import attempt_of, some_grant
from support.workers.runners import make_spec
from support.workers.worker import Bed

if TYPE_CHECKING:
    from collections.abc import Callable

    from forge_worker.runners.runner import Runner

OLDEST = (3, 8)
# Saves at once, and again when asked to stop; the next attempt resumes from there.
TRAINS = """
import pathlib, threading
from forge_worker import job

folder = job.checkpoint_dir()
place = folder / "step"
if place.exists():
    print("goes on after", place.read_text(), pathlib.Path(job.__file__).parent, flush=True)
    (job.output_dir() / "done").write_text("yes")
    raise SystemExit
try:
    pathlib.Path(job.__file__).write_text("mine")
except OSError:
    print("cannot be written", flush=True)
place.write_text("1")
job.report(step=1, total=2, loss=float("nan"))
job.save_now()
while not job.should_stop():
    threading.Event().wait(0.05)
raise SystemExit(1)
"""
# Adds up its steps, and dies after one of them by a signal.
LOOPS = """
import os, sys
from forge_worker.integrations.group import Saver, steps

class Sum(Saver):
    value = 0
    def save(self, folder):
        (folder / "sum").write_text(str(self.value))
    def load(self, folder):
        self.value = int((folder / "sum").read_text())

at, number = map(int, sys.argv[1:] or (0, 0))
total = Sum()
for step in steps(total, 9, save_every=2):
    total.value += step
    assert total.value == step * (step + 1) // 2
    print(step, flush=True)
    if step == at:
        os.kill(os.getpid(), number)
"""


def test_a_job_saves_when_it_asks_for_it_reports_and_stops_when_asked(
    both: Bed, eventually: Callable[..., None]
) -> None:
    both.worker()
    # By the interval alone, nothing would be stored before the job has ended.
    job_id = both.script(TRAINS, checkpoint_interval_s=3600)
    eventually(lambda: both.jobs.checkpoints(job_id))
    eventually(lambda: both.job(job_id)["progress"] == 0.5)
    (line,) = both.jobs.metrics(job_id)
    assert (line["step"], line["values"]["loss"]) == (1, "NaN")
    assert both.queue.preempt(job_id)
    both.succeeds(job_id)
    assert both.reasons(job_id) == ["preempted", "succeeded"]
    said = both.log(job_id).decode()
    assert "goes on after 1" in said
    if both.kind == "docker":
        # A process that runs as root may write anywhere.
        assert "cannot be written" in said
        assert "/forge/python/forge_worker" in said
    assert list(both.artifacts(job_id)) == ["done"]


def test_a_committed_step_replaces_the_file_and_a_plain_request_leaves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.save_now(1)
    file = tmp_path / "checkpoint"
    monkeypatch.setenv("FORGE_CHECKPOINT_FILE", str(file))
    inodes = []
    for step in (100, 100, 0):
        job.save_now(step)
        assert file.read_text() == f"{step}\n"
        inodes.append(file.stat().st_ino)
    assert inodes[0] != inodes[1]
    job.save_now()
    assert file.read_text() == "0\n"
    for step in (-1, 2**53):
        with pytest.raises(ValueError, match="from 0 to 2"):
            job.save_now(step)
    with pytest.raises(TypeError):
        job.save_now(1.5)  # type: ignore[arg-type]  # as a program may
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
    # A folder that is gone, or a full disk, is no reason to end a training run.
    monkeypatch.setenv("FORGE_CHECKPOINT_FILE", str(tmp_path / "gone" / "checkpoint"))
    job.save_now(2)


def test_the_jobs_own_path_and_its_own_package_come_first(tmp_path: Path) -> None:
    root = tmp_path / "given"
    root.mkdir()
    spec = make_spec(tmp_path / "jobs", ())
    attempt = attempt_of(some_grant(), tmp_path / "attempt")

    class Nowhere:
        def place(self, mount: Any) -> Path:  # noqa: ANN401  the runner's
            return Path(mount.source)

    provision = JobModuleProvision(root)
    runner = cast("Runner", Nowhere())
    (given,) = provision.provide(spec, attempt, runner).python_dirs
    names = {path.name for path in Path(given, "forge_worker").iterdir()}
    assert names == {"__init__.py", "job.py", "integrations"}
    # A process run by root may write there, but the next job gets the original.
    module = Path(given, "forge_worker", "job.py")
    module.chmod(0o600)
    module.write_text("mine")
    assert provision.provide(spec, attempt, runner).python_dirs == (given,)
    assert module.read_bytes() == Path(job.__file__).read_bytes()
    # Another package of this name, without the module: both can be imported.
    installed = tmp_path / "site" / "forge_worker"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    (installed / "else_where.py").write_text("WORD = 'theirs'")
    code = "import forge_worker.job; from forge_worker.else_where import WORD; print(WORD)"
    for order in ([given, installed.parent], [given]):
        path = os.pathsep.join(map(str, order))
        ended = subprocess.run(
            [sys.executable, "-S", "-c", code if len(order) > 1 else "import forge_worker.job"],
            env={"PYTHONPATH": path},
            check=False,
            capture_output=True,
        )
        assert ended.returncode == 0, ended.stderr.decode()


@pytest.mark.parametrize(
    ("files", "seen", "made"),
    [
        ({"setup.cfg": "[options.entry_points]\nconsole_scripts =\n  go = app:main\n"}, ".", "go"),
        ({"setup.py": "setup(entry_points={'console_scripts': ['go=a.b:c', 'h-1 = a:b']})"}, ".",
         "go h-1"),
        ({"pyproject.toml": "[tool.poetry.scripts]\ngo = 'a:b'\n'../x' = 'a:b'\n'no' = 'a b:c'"},
         ".", "go"),
        ({"pyproject.toml": "[tool", "src/a.py": ""}, ". src", ""),
        # It would hide a module of Python itself; what is in `src` need not.
        ({"pyproject.toml": "", "logging.py": "", "src/a.py": ""}, "src", ""),
        ({"pyproject.toml": "", "train.py": "", "src/logging.py": ""}, ".", ""),
        ({"pyproject.toml": "", "src/__init__.py": ""}, ".", ""),
        ({"train.py": "", "src/a.py": ""}, None, ""),
    ],
)  # fmt: skip
def test_a_project_is_used_as_if_it_were_installed(
    tmp_path: Path, files: dict[str, str], seen: str | None, made: str
) -> None:
    spec = make_spec(tmp_path / "jobs", ())
    grant = some_grant()
    attempt = attempt_of(grant, tmp_path / "attempt")
    for name, text in files.items():
        path = attempt.folders.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    class Here:
        paths = staticmethod(lambda spec: spec)

    runner = cast("Runner", Here())
    # A store that failed has it called again.
    for _ in range(2):
        given = ProjectProvision().provide(spec, attempt, runner)
    places = [os.path.relpath(place, spec.work_dir) for place in given.python_dirs[1:]]
    assert places == (seen.split() if seen else [])
    folder = attempt.folders.control / "project" / "bin"
    assert sorted(path.name for path in folder.glob("*")) == made.split()
    # An image may have it installed, with what was compiled of it.
    grant.spec["image"] = "mine"
    assert ProjectProvision().provide(spec, attempt, runner) == spec


def test_it_runs_on_the_oldest_python_and_with_nothing_else(tmp_path: Path) -> None:
    ours = Path(job.__file__)
    for file in (ours, *ours.with_name("integrations").glob("*.py")):
        ast.parse(file.read_text(encoding="utf-8"), feature_version=OLDEST)
    package = tmp_path / "path" / "forge_worker"
    package.mkdir(parents=True)
    shutil.copy(job.__file__, package / "job.py")
    code = (
        "from forge_worker import job; job.report(step=1); job.save_now();"
        "print(job.should_stop(), job.checkpoint_dir(), job.output_dir())"
    )
    ended = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(package.parent), "PATH": os.environ["PATH"]},
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.stdout.split() == ["False", "checkpoint", "output"], ended.stderr
    # Outside Forge, it makes the two folders and nothing else.
    assert {path.name for path in tmp_path.iterdir()} == {"path", "checkpoint", "output"}


def test_the_steps_of_a_loop_are_saved_committed_and_resumed_with_nothing_else(
    tmp_path: Path,
) -> None:
    def run(*death: int) -> tuple[int, list[int]]:
        ended = subprocess.run(
            [sys.executable, "-S", "-c", LOOPS, *map(str, death)],
            env={
                "PYTHONPATH": str(Path(job.__file__).parents[1]),
                "FORGE_CHECKPOINT_FILE": str(tmp_path / "commit"),
            },
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
        )
        assert not ended.stderr
        return ended.returncode, [int(word) for word in ended.stdout.split()]

    def committed() -> tuple[int, list[str]]:
        kept = sorted(path.name for path in (tmp_path / "checkpoint").iterdir())
        return int((tmp_path / "commit").read_text()), kept

    assert run(5, signal.SIGKILL) == (-signal.SIGKILL, [1, 2, 3, 4, 5])
    assert committed() == (4, ["step-2", "step-4"])
    # As if it had been killed in the middle of a save.
    (tmp_path / "checkpoint" / "unfinished-6").mkdir()
    assert run(7, signal.SIGTERM) == (143, [5, 6, 7])
    assert committed() == (7, ["step-6", "step-7"])
    assert run() == (0, [8, 9])
    assert committed() == (9, ["step-8", "step-9"])
    assert run() == (0, [])


def test_lines_of_many_threads_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "metrics"
    monkeypatch.setenv("FORGE_METRICS_FILE", str(file))

    class Tensor:
        def item(self) -> float:
            return 0.5

    def tell(number: int) -> None:
        for step in range(200):
            job.report(step=step, who=number, loss=Tensor(), text="x" * 500, odd={1: object})

    threads = [threading.Thread(target=tell, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert sorted((line["who"], line["step"]) for line in lines) == [
        (who, step) for who in range(8) for step in range(200)
    ]
    assert {line["loss"] for line in lines} == {0.5}
    monkeypatch.setenv("FORGE_METRICS_FILE", str(tmp_path))
    job.report(step=1)  # a folder: nothing is written, and nothing fails
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="ircular"):
        job.report(loop=loop)
