"""W&B and MLflow, the real libraries: all attempts of a job log to one run, whenever they die.

FORGE_TEST_TORCH_BIN names an environment that has them; `make test-launchers` makes one. W&B runs
offline or with a stand-in for its server, and MLflow keeps its runs in a file of SQLite.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from forge_schema.model.reading import link_of
from forge_worker.integrations import tracked
from support.http.wandb_server import wandb_server
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

WORKER = Path(__file__).parents[3] / "worker"
BIN = os.environ.get("FORGE_TEST_TORCH_BIN", "")
NAME = "forge-0a1b2c3d-7"

real = pytest.mark.skipif(not BIN, reason="FORGE_TEST_TORCH_BIN is not set")

MLFLOW = """
import os, signal, mlflow
from forge_worker.integrations.mlflow import start_run
from mlflow import MlflowClient

class Dies(MlflowClient):
    def create_run(self, *given, **named):
        super().create_run(*given, **named)
        os.kill(os.getpid(), signal.SIGKILL)
if os.environ["AT"] == "create":
    mlflow.tracking.fluent.MlflowClient = Dies
with start_run() as run:
    mlflow.log_metric("loss", 0.5, step=1)
    if os.environ["AT"] == "log":
        os.kill(os.getpid(), signal.SIGKILL)
found = MlflowClient().search_runs([run.info.experiment_id])
experiment = mlflow.get_experiment(run.info.experiment_id)
history = MlflowClient().get_metric_history(run.info.run_id, "loss")
print([(one.info.run_name, one.info.status, one.data.params) for one in found],
      experiment.name, len(history))
"""
WANDB = """
from forge_worker.integrations.wandb import init
run = init(project="digits")
print(run.id, run.name, run.group, run.resumed, dict(run.config), run.disabled)
run.log({"loss": 0.5})
run.finish()
"""

# Waits where it is to be killed.
WANDB_SERVED = """
import os, signal
from forge_worker.integrations.wandb import init
run = init(project="digits")
print(run.resumed, run.starting_step, flush=True)
if os.environ["AT"] != "create":
    run.log({"loss": 0.5})
if os.environ["AT"]:
    signal.pause()
run.finish()
"""


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of each attempt of one job."""
    return {
        **os.environ,
        "FORGE_RUN": NAME,
        "FORGE_EXPERIMENT": "digits",
        "FORGE_PARAMETERS": '{"lr": 0.1}',
        "FORGE_METRICS_FILE": str(folder / "metrics"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
        "HOME": str(folder),
        "PYTHONPATH": str(WORKER),
    }


def attempt(
    folder: Path, program: str, python: str = f"{BIN}/python", **given: str
) -> subprocess.CompletedProcess[str]:
    """Run a program as an attempt of one job."""
    return subprocess.run(
        [python, "-W", "ignore", "-c", program],
        cwd=folder,
        env={**environment(folder), **given},
        capture_output=True,
        text=True,
        check=False,
    )


@real
def test_attempts_that_die_leave_one_run_of_mlflow(tmp_path: Path) -> None:
    for at in ("create", "log"):
        died = attempt(tmp_path, MLFLOW, AT=at)
        assert died.returncode == -signal.SIGKILL, died.stderr
    done = attempt(tmp_path, MLFLOW, AT="")
    assert done.stdout.splitlines()[-1:] == [
        f"[('{NAME}', 'FINISHED', {{'lr': '0.1'}})] digits 2"
    ], done.stderr
    # A file has no page.
    assert not (tmp_path / "metrics").exists()


@real
def test_rank_0_alone_logs_to_the_run_of_wandb(tmp_path: Path) -> None:
    for _ in range(2):
        done = attempt(tmp_path, WANDB)
        assert done.stdout.startswith(f"{NAME} {NAME} digits "), done.stderr
        assert done.stdout.endswith("{'lr': 0.1} False\n")
    # Offline, a run has no page.
    assert "http" not in (tmp_path / "metrics").read_text()
    kept = sorted(tmp_path.glob("checkpoint/wandb/offline-run-*"))
    other = attempt(tmp_path, WANDB, RANK="1")
    assert other.stdout.endswith(" True\n"), other.stderr
    assert sorted(tmp_path.glob("checkpoint/wandb/offline-run-*")) == kept
    assert kept
    assert all(path.name.endswith(NAME) for path in kept)


OFFLINE = """
import os, signal, sys
from forge_worker.integrations.wandb import init
run = init(project="digits")
for step in range(3):
    run.log({"loss": 1 / (step + 1), "inf": float("inf"), "deep": {"x": step}, "name": "a"})
if os.environ["AT"] == "stop":
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
if os.environ["AT"] == "raise":
    raise ValueError
"""


@real
@pytest.mark.parametrize(
    ("at", "code", "artifact"), [("", 0, True), ("raise", 1, True), ("stop", -15, False)]
)
def test_an_offline_run_of_wandb_is_complete_however_the_program_ends(
    tmp_path: Path, at: str, code: int, *, artifact: bool
) -> None:
    done = attempt(tmp_path, OFFLINE, AT=at)
    assert done.returncode == code, done.stderr
    (kept,) = tmp_path.glob("checkpoint/wandb/offline-run-*/*.wandb")
    # Without an end, it has a header of 7 bytes.
    eventually(lambda: kept.stat().st_size > 1000)
    stored = list(tmp_path.glob("output/wandb/offline-run-*/*.wandb"))
    assert [one.read_bytes() for one in stored] == [kept.read_bytes()] * artifact
    lines = map(json.loads, (tmp_path / "metrics").read_text().splitlines())
    assert [(line["step"], line["loss"], line["inf"], line["deep.x"]) for line in lines] == [
        (step, 1 / (step + 1), float("inf"), step) for step in range(3)
    ]


STAND_IN = """
import os, pathlib, types
run = None
class Run:
    url, step = None, 0
    settings = types.SimpleNamespace(mode="offline")
    def __init__(self, place):
        self.dir = pathlib.Path(place, "wandb", "offline-run-1", "files")
        self.dir.mkdir(parents=True)
        self.file = self.dir.with_name("run.wandb")
        self.file.write_text("header")
    def log(self, data, step=None):
        pass
    def finish(self):
        self.file.write_text("complete")
def init(**given):
    return Run(given.get("dir", "."))
def teardown():
    pass
"""


MLFLOW_STAND_IN = """
from types import SimpleNamespace
uri = None
def is_tracking_uri_set():
    return uri is not None
def get_tracking_uri():
    return uri
def set_tracking_uri(value):
    global uri
    uri = value
def set_experiment(name):
    return SimpleNamespace(experiment_id="1")
class MlflowClient:
    def search_runs(self, *_, **__):
        return []
def start_run(**_):
    return SimpleNamespace(info=SimpleNamespace(run_id="a", experiment_id="1"))
def log_params(_):
    pass
"""


def test_a_run_of_mlflow_without_a_server_is_in_the_checkpoint_folder(tmp_path: Path) -> None:
    (tmp_path / "mlflow.py").write_text(MLFLOW_STAND_IN)
    paths = f"{WORKER}{os.pathsep}{tmp_path}"
    program = (
        "import mlflow; from forge_worker.integrations.mlflow import start_run;"
        " start_run(); print(mlflow.uri); mlflow.uri = 'file:mine'; start_run(); print(mlflow.uri)"
    )
    done = attempt(tmp_path, program, python=sys.executable, PYTHONPATH=paths)
    assert done.stdout.split() == ["sqlite:///checkpoint/mlflow.db", "file:mine"], done.stderr


@pytest.mark.parametrize(("at", "code", "artifact"), [("", 0, True), ("stop", -15, False)])
@pytest.mark.parametrize("given", ["", ", settings={'mode': 'offline'}", ", mode='offline'"])
def test_the_line_itself_finishes_and_keeps_an_offline_run(
    tmp_path: Path, given: str, at: str, code: int, *, artifact: bool
) -> None:
    (tmp_path / "wandb.py").write_text(STAND_IN)
    variables = {"PYTHONPATH": f"{WORKER}{os.pathsep}{tmp_path}", "AT": at}
    mode = {"WANDB_MODE": "online"} if given else {}
    program = OFFLINE.replace('"digits"', f'"digits"{given}')
    done = attempt(tmp_path, program, python=sys.executable, **variables, **mode)
    assert done.returncode == code, done.stderr
    (kept,) = tmp_path.glob("checkpoint/wandb/offline-run-1/run.wandb")
    assert kept.read_text() == "complete"
    assert len(list(tmp_path.glob("output/wandb/offline-run-1/run.wandb"))) == artifact
    lines = list(map(json.loads, (tmp_path / "metrics").read_text().splitlines()))
    assert [(line["loss"], line["inf"]) for line in lines] == [
        (1 / (step + 1), float("inf")) for step in range(3)
    ]


@real
def test_attempts_that_die_leave_one_run_of_wandb(tmp_path: Path) -> None:
    key = "0123456789" * 4
    with wandb_server(key) as server:
        given = {"WANDB_MODE": "online", "WANDB_BASE_URL": server.url, "WANDB_API_KEY": key}

        def dies(at: str, when: Callable[[], object]) -> None:
            with subprocess.Popen(
                [f"{BIN}/python", "-W", "ignore", "-c", WANDB_SERVED],
                cwd=tmp_path,
                env={**environment(tmp_path), **given, "AT": at},
            ) as process:
                try:
                    eventually(when)
                finally:
                    process.kill()

        dies("create", lambda: server.runs)
        dies("log", lambda: server.runs[NAME].history)
        done = attempt(tmp_path, WANDB_SERVED, AT="", **given)
        assert done.stdout == "True 1\n", done.stderr
        assert list(server.runs) == [NAME]
        run = server.runs[NAME]
        assert (run.asked["groupName"], run.asked["displayName"]) == ("digits", NAME)
        assert json.loads(run.asked["config"])["lr"] == {"value": 0.1}
        assert [(line["_step"], line["loss"]) for line in run.history] == [(0, 0.5), (1, 0.5)]
        assert run.finished
        assert not server.refused
        lines = (tmp_path / "metrics").read_text().splitlines()
        assert {json.loads(line)["wandb"] for line in lines} == {
            f"{server.url}/ann/digits/runs/{NAME}"
        }


@pytest.mark.parametrize(
    ("url", "reported"),
    [
        ("https://ann:secret@track.example:8080/#/runs/1", "https://track.example:8080/#/runs/1"),
        ("http://localhost:5000/#/runs/1", "http://localhost:5000/#/runs/1"),
        ("sqlite:///mlflow.db/#/runs/1", None),
        (None, None),
    ],
)
def test_link_has_no_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str | None, reported: str | None
) -> None:
    file = tmp_path / "metrics"
    monkeypatch.setenv("FORGE_METRICS_FILE", str(file))
    tracked.link("mlflow", url)
    assert (json.loads(file.read_text())["mlflow"] if file.exists() else None) == reported


@pytest.mark.parametrize(
    "value",
    [
        1,
        None,
        "",
        "javascript:alert(1)",
        "https:",
        "https://a b",
        'https://a"b',
        "https://a\n",
        "https://ann@",
    ],
)
def test_only_addresses_of_pages_are_links(value: object) -> None:
    url = "https://wandb.ai/ann/digits/runs/1?x=a@b#y"
    assert link_of(url) == link_of(f"https://ann:p@ss@{url[8:]}") == url
    assert link_of(value) is None
