"""Jobs that log to a real MLflow server: they die twice, or the server is away for a while.

As in test_frameworks.py, FORGE_TEST_TORCH_BIN names the environment that has MLflow.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import httpx
import pytest
from support.client.command import command
from support.ports import free_port
from support.waiting import eventually
from support.workers.worker import bed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.workers.worker import Bed

BIN = os.environ.get("FORGE_TEST_TORCH_BIN", "")
PATH = {"PATH": f"{BIN}:{os.environ['PATH']}"}
USER, PASSWORD = "admin", "correct-horse-battery"

pytestmark = pytest.mark.skipif(not BIN, reason="FORGE_TEST_TORCH_BIN is not set")

# Dies right after its run was made, then after it has logged; then it finishes.
DIES = """
import os, signal, mlflow
from forge_worker.integrations.mlflow import start_run
attempt = os.environ["FORGE_ATTEMPT"]

class Dies(mlflow.MlflowClient):
    def create_run(self, *given, **named):
        super().create_run(*given, **named)
        os.kill(os.getpid(), signal.SIGKILL)
if attempt == "1":
    mlflow.tracking.fluent.MlflowClient = Dies
with start_run() as run:
    mlflow.log_metric("loss", 1 / int(attempt), step=int(attempt))
    if attempt == "2":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@contextmanager
def server(folder: Path, port: int, *, accounts: bool = False) -> Iterator[httpx.Client]:
    """Start MLflow's server, with accounts if wanted, and yield a client that has one."""
    folder.mkdir(exist_ok=True)
    url = f"http://127.0.0.1:{port}"
    options = ["--host=127.0.0.1", f"--port={port}", "--workers=1"]
    options += [f"--backend-store-uri=sqlite:///{folder}/runs.db"]
    told = {"PATH": f"{BIN}:{os.environ['PATH']}"}
    if accounts:
        options.append("--app-name=basic-auth")
        told |= _accounts(folder)
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [f"{BIN}/mlflow", "server", *options],
            cwd=folder,
            env={**os.environ, **told},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        with httpx.Client(base_url=url, auth=(USER, PASSWORD)) as client:
            eventually(lambda: process.poll() is not None or answers(client), 300, 0.2)
            assert process.poll() is None, (folder / "log").read_text()
            yield client
    finally:
        # It would wait for its clients to close their connections.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


def _accounts(folder: Path) -> dict[str, str]:
    accounts = folder / "accounts.ini"
    accounts.write_text(
        "[mlflow]\ndefault_permission = NO_PERMISSIONS\n"
        f"database_uri = sqlite:///{folder}/accounts.db\nadmin_username = {USER}\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
    )
    return {
        "MLFLOW_AUTH_CONFIG_PATH": str(accounts),
        "MLFLOW_AUTH_ADMIN_PASSWORD": PASSWORD,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "k" * 32,
    }


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/health").is_success
    except httpx.TransportError:
        return False


def test_a_job_that_dies_twice_has_one_run_and_its_page_a_link_without_credentials(
    tmp_path: Path, database_url: str
) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir(mode=0o700)
    named = {"MLFLOW_TRACKING_USERNAME": USER, "MLFLOW_TRACKING_PASSWORD": PASSWORD}
    for name, value in named.items():
        (secrets / name).write_text(value)
        (secrets / name).chmod(0o600)
    environment = {"PATH": f"{BIN}:{os.environ['PATH']}", "FORGE_SECRETS_DIR": str(secrets)}
    with (
        server(tmp_path / "mlflow", free_port(), accounts=True) as mlflow,
        bed("process", tmp_path, database_url, environment=environment) as made,
    ):
        assert httpx.get(f"{mlflow.base_url}/api/2.0/mlflow/users/get").status_code == 401
        made.worker()
        job = made.submit(
            *(f"{BIN}/python", "-W", "ignore", "-c", DIES),
            env={"MLFLOW_TRACKING_URI": str(mlflow.base_url)},
            secrets=list(named),
            experiment="digits",
            max_failures=2,
        )
        made.succeeds(job, 300)
        assert made.reasons(job) == ["exit_code", "exit_code", "succeeded"]
        experiment = mlflow.get(
            "/api/2.0/mlflow/experiments/get-by-name", params={"experiment_name": "digits"}
        ).json()["experiment"]["experiment_id"]
        asked = {"experiment_ids": [experiment]}
        (run,) = mlflow.post("/api/2.0/mlflow/runs/search", json=asked).json()["runs"]
        assert run["info"]["status"] == "FINISHED"
        assert [(one["key"], one["step"]) for one in run["data"]["metrics"]] == [("loss", 3)]
        place = f"#/experiments/{experiment}/runs/{run['info']['run_id']}"
        forge = command(
            tmp_path, FORGE_DATABASE_URL=made.database.url, FORGE_STORE_URL=made.store.url
        )
        shown = forge("show", str(job))
        assert f"{str(mlflow.base_url).rstrip('/')}/{place}" in shown.stdout, shown
        assert PASSWORD not in shown.stdout + made.log(job).decode()


# Logs once, then while the server is gone, and at last when the test says so.
AWAY = """
import os, threading
from pathlib import Path
import mlflow
from forge_worker.integrations import tracked
from forge_worker.integrations.mlflow import start_run
tracked.PAUSE_S = 0.1
place = Path(os.environ["PLACE"])
def waits(name):
    while not (place / name).exists():
        threading.Event().wait(0.1)
with start_run():
    mlflow.log_metric("loss", 1.0, step=1)
    (place / "logged").touch()
    waits("gone")
    for step in range(2, 5):
        mlflow.log_metric("loss", 1 / step, step=step)
    (place / "kept").touch()
    waits("back")
    mlflow.log_metric("loss", 0.0, step=5)
"""


def logging(made: Bed, port: int, place: Path) -> int:
    made.worker()
    return made.submit(
        *(f"{BIN}/python", "-W", "ignore", "-c", AWAY),
        env={
            "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}",
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
            "PLACE": str(place),
        },
        max_failures=0,
    )


def test_a_server_that_is_away_at_the_start_costs_a_job_nothing(
    tmp_path: Path, database_url: str
) -> None:
    for name in ("gone", "back"):
        (tmp_path / name).touch()
    with bed("process", tmp_path, database_url, environment=PATH) as made:
        job = logging(made, free_port(), tmp_path)
        made.succeeds(job, 300)
        assert "so this attempt's run is in sqlite" in made.log(job).decode()


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_server_that_goes_away_in_the_middle_gets_what_waited_if_it_comes_back(
    tmp_path: Path, database_url: str, *, comes_back: bool
) -> None:
    port, folder = free_port(), tmp_path / "mlflow"
    with bed("process", tmp_path, database_url, environment=PATH) as made:
        with server(folder, port):
            job = logging(made, port, tmp_path)
            eventually((tmp_path / "logged").exists, 300)
        (tmp_path / "gone").touch()
        eventually((tmp_path / "kept").exists, 300)
        made.says(job, "what is logged is sent once it does")
        with server(folder, port) if comes_back else nullcontext() as mlflow:
            (tmp_path / "back").touch()
            made.succeeds(job, 300)
            if mlflow is None:
                assert "does not answer at the end" in made.log(job).decode()
                return
            asked = {"experiment_ids": ["0"]}
            (run,) = mlflow.post("/api/2.0/mlflow/runs/search", json=asked).json()["runs"]
            assert run["info"]["status"] == "FINISHED"
            named = {"run_id": run["info"]["run_id"], "metric_key": "loss"}
            history = mlflow.get("/api/2.0/mlflow/metrics/get-history", params=named).json()
            assert sorted(one["step"] for one in history["metrics"]) == [1, 2, 3, 4, 5]
