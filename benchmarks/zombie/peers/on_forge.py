"""Forge: its own worker, with a short lease; jobs are processes."""

import os
import subprocess
import sys
from pathlib import Path

from forge_schema.database import migrate
from forge_schema.database.pool import Database
from forge_schema.model.lease import End, Fence
from forge_schema.model.spec import JobSpec, Resources
from forge_schema.model.states import Reason
from forge_schema.queue.queue import Queue
from forge_worker.main import main as forge_worker

from benchmarks.zombie import handler

FENCE = "SELECT job_id, token, nonce FROM attempt WHERE attempt = 1"


def prepare() -> None:
    migrate.upgrade(os.environ["ZOMBIE_URL"])
    job = JobSpec(
        name="zombie",
        owner="ann",
        command=[sys.executable, handler.__file__],
        env={"ZOMBIE_FOLDER": os.environ["ZOMBIE_FOLDER"]},
        resources=Resources(cpus=1, memory_mb=128, disk_mb=100),
    )
    with Database(os.environ["ZOMBIE_URL"]) as database:
        Queue(database, actor="user:ann").submit([job])


def work() -> None:
    # Each is another machine's: nothing of a dead one is found and given back early.
    folder = handler.folder() / f"worker-{os.getpid()}"
    (handler.folder() / "store").mkdir(exist_ok=True)
    os.environ |= settings(folder)
    sys.argv[1:] = []
    forge_worker()


def tidy() -> None:
    """Have what killed workers left on this machine cleared away."""
    for folder in handler.folder().glob("worker-*/"):
        command = [sys.executable, "-m", "forge_worker.main", "--recover"]
        subprocess.run(command, env={**os.environ, **settings(folder)}, check=True)


def settings(folder: Path) -> dict[str, str]:
    """Return the variables of the worker that has a folder."""
    limit_s = float(os.environ["ZOMBIE_LIMIT_S"])
    return {
        "FORGE_DATABASE_URL": os.environ["ZOMBIE_URL"],
        "FORGE_STORE_URL": (handler.folder() / "store").as_uri(),
        "FORGE_WORKER_NAME": folder.name,
        "FORGE_WORKER_DIR": str(folder),
        "FORGE_RUNNER": "process",
        "FORGE_ALLOW_PROCESSES": "true",
        "FORGE_LEASE_TTL_S": str(limit_s),
        "FORGE_HEARTBEAT_S": str(limit_s / 5),
        "FORGE_SWEEP_S": "1",
        "FORGE_POLL_S": "0.5",
        "FORGE_DISK_FLOOR_MB": "0",
    }


def report() -> None:
    """Make the call once more that a worker makes for a job that ended well, as the zombie."""
    with Database(os.environ["ZOMBIE_URL"]) as database:
        with database.connection() as connection:
            rows = connection.execute(FENCE).fetchall()
        fence = Fence(**rows[0])
        queue = Queue(database, actor="worker:zombie")
        sys.stdout.write(f"{queue.finish([End(fence, Reason.SUCCEEDED)])[0]}\n")


if __name__ == "__main__":
    {"prepare": prepare, "work": work, "report": report, "tidy": tidy}[sys.argv[1]]()
