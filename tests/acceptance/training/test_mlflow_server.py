"""A job that logs to a real MLflow server, which demands a password, and dies twice.

As in test_frameworks.py, FORGE_TEST_TORCH_BIN names the environment that has MLflow.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
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

BIN = os.environ.get("FORGE_TEST_TORCH_BIN", "")
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
def server(folder: Path) -> Iterator[httpx.Client]:
    """Start MLflow's server with accounts, and yield a client that has one."""
    folder.mkdir()
    accounts = folder / "accounts.ini"
    accounts.write_text(
        "[mlflow]\ndefault_permission = NO_PERMISSIONS\n"
        f"database_uri = sqlite:///{folder}/accounts.db\nadmin_username = {USER}\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
    )
    url = f"http://127.0.0.1:{free_port()}"
    options = ("--app-name=basic-auth", "--host=127.0.0.1", f"--port={url.rpartition(':')[2]}")
    runs = (f"--backend-store-uri=sqlite:///{folder}/runs.db", "--workers=1")
    told = {
        "MLFLOW_AUTH_CONFIG_PATH": str(accounts),
        "MLFLOW_AUTH_ADMIN_PASSWORD": PASSWORD,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "k" * 32,
        "PATH": f"{BIN}:{os.environ['PATH']}",
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [f"{BIN}/mlflow", "server", *options, *runs],
            cwd=folder,
            env={**os.environ, **told},
            stdout=log,
            stderr=log,
        )
    try:
        with httpx.Client(base_url=url, auth=(USER, PASSWORD)) as client:
            eventually(lambda: process.poll() is not None or answers(client), 300, 0.2)
            assert process.poll() is None, (folder / "log").read_text()
            yield client
    finally:
        process.terminate()
        process.wait(60)


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
        server(tmp_path / "mlflow") as mlflow,
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
