"""The real launchers: the example has the same losses as on one machine, and Ray has its cluster.

PyTorch is too large for the tests' own requirements. FORGE_TEST_TORCH_BIN names a folder with the
programs of an environment that has it; `make test-launchers` makes one.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from forge_schema.model.spec import Resources
from support.waiting import eventually
from support.workers.worker import bed

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "multi_node"
BIN = os.environ.get("FORGE_TEST_TORCH_BIN", "")
PATH = {"PATH": f"{BIN}:{os.environ['PATH']}"}
STEPS = 8
MANY = 1000
# A cluster of Ray takes two minutes to start on a busy machine.
PATIENCE = 600

pytestmark = pytest.mark.skipif(not BIN, reason="FORGE_TEST_TORCH_BIN is not set")


def losses(said: str) -> list[float]:
    return [float(line.split()[-1]) for line in said.splitlines() if line.startswith("step ")]


def alone(folder: Path, steps: int = STEPS) -> list[float]:
    """Return the losses of one machine with the whole batch."""
    folder.mkdir()
    done = subprocess.run(
        [f"{BIN}/python", "train.py", f"--steps={steps}"],
        cwd=EXAMPLE,
        env={"PYTHONPATH": str(ROOT / "worker"), "FORGE_CHECKPOINT_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return losses(done.stdout)


@pytest.mark.parametrize(
    ("nodes", "launcher", "program"),
    [
        (1, "torchrun", ["train.py"]),
        (1, "accelerate", ["train.py"]),
        (1, "deepspeed", ["python", "train.py"]),
        (2, "torchrun", ["train.py"]),
        (3, "torchrun", ["python", "-m", "train"]),
        (4, "torchrun", ["train.py"]),
        (2, "accelerate", ["train.py"]),
        (2, "deepspeed", ["python", "train.py"]),
        (2, "mpirun", ["python", "train.py"]),
        (2, "none", ["python", "train.py"]),
    ],
)
def test_the_losses_are_those_of_one_machine(
    tmp_path: Path, database_url: str, nodes: int, launcher: str, program: list[str]
) -> None:
    with bed("process", tmp_path, database_url, environment=PATH) as made:
        for rank in range(nodes):
            made.worker(f"m{rank}")
        job = made.submit(
            *program,
            f"--steps={STEPS}",
            folder=EXAMPLE,
            nodes=nodes,
            launcher=launcher,
            resources=Resources(cpus=1, memory_mb=4096, disk_mb=500),
        )
        made.succeeds(job)
        log = made.log(job).decode()
        assert log.count(f" of {nodes} has finished") == nodes or nodes == 1
        assert losses(log) == pytest.approx(alone(tmp_path / "alone"), abs=1e-9)
        assert len(losses(log)) == STEPS


def test_training_goes_on_with_the_machines_that_are_left(
    tmp_path: Path, database_url: str
) -> None:
    with bed("process", tmp_path, database_url, environment=PATH) as made:
        workers = [made.worker(f"m{n}", lease_ttl_s=10, offline_s=4) for n in range(3)]
        job = made.submit(
            "train.py",
            f"--steps={MANY}",
            folder=EXAMPLE,
            nodes=2,
            max_nodes=4,
            launcher="torchrun",
            checkpoint_interval_s=1,
            max_losses=1,
            resources=Resources(cpus=1, memory_mb=4096, disk_mb=500),
        )
        eventually(lambda: made.jobs.checkpoints(job))
        workers[1].kill()
        made.succeeds(job, 600)
        log = made.log(job).decode()
        places = [(row["attempt"], row["rank"]) for row in made.jobs.attempts(job)]
        assert places == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)]
        assert "resumed after step" in log
        assert log.count(" of 2 has finished") == 2
        assert losses(log)[-1] == pytest.approx(alone(tmp_path / "alone", MANY)[-1], abs=1e-9)
        # It clears up what was killed.
        made.worker("m1")


# One task on each machine; each says where it ran.
TASKS = """
import ray
ray.init()

@ray.remote(num_cpus=1)
class Place:
    def node(self):
        return ray.get_runtime_context().get_node_id()

places = [Place.remote() for _ in range(2)]
print("machines", len({*ray.get([place.node.remote() for place in places])}))
"""


def test_a_ray_cluster_spans_the_workers_and_ends_with_the_job(
    tmp_path: Path, database_url: str
) -> None:
    with bed("process", tmp_path, database_url, environment=PATH) as made:
        for rank in range(2):
            made.worker(f"m{rank}")
        one = Resources(cpus=1, memory_mb=2048, disk_mb=500)
        job = made.submit("python", "-c", TASKS, nodes=2, launcher="ray", resources=one)
        made.succeeds(job, PATIENCE)
        assert "machines 2" in made.log(job).decode()
        assert made.reasons(job) == ["succeeded", "run_ended"]
        # Nothing of the first cluster is in the way of the next.
        again = made.submit("python", "-c", TASKS, nodes=2, launcher="ray", resources=one)
        made.succeeds(again, PATIENCE)


# An actor on the other machine keeps the state, and takes its time.
STATE = """
import os, signal, sys, threading, ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
folder = os.environ["FORGE_CHECKPOINT_DIR"]
if os.listdir(folder):
    print("restored", *os.listdir(folder))
    sys.exit()
ray.init()
own = ray.get_runtime_context().get_node_id()
other = next(node["NodeID"] for node in ray.nodes() if node["NodeID"] != own)

@ray.remote(num_cpus=1)
class State:
    def fetched(self):
        threading.Event().wait(3)
        return os.environ["RANK"], [0] * 10**6

state = State.options(
    scheduling_strategy=NodeAffinitySchedulingStrategy(other, soft=False)
).remote()
ray.get(state.fetched.remote())
asked = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: asked.set())
print("ready", flush=True)
asked.wait()
rank, _ = ray.get(state.fetched.remote())
open(os.path.join(folder, f"of-rank-{rank}"), "w").close()
"""


def test_a_preempted_driver_still_fetches_the_state_of_its_actors(
    tmp_path: Path, database_url: str
) -> None:
    with bed("process", tmp_path, database_url, environment=PATH) as made:
        for rank in range(2):
            made.worker(f"m{rank}")
        one = Resources(cpus=1, memory_mb=2048, disk_mb=500)
        asked: dict[str, Any] = {"launcher": "ray", "resources": one, "max_failures": 0}
        job = made.submit("python", "-c", STATE, nodes=2, **asked)
        made.says(job, "ready", PATIENCE)
        assert made.queue.preempt(job)
        made.succeeds(job, PATIENCE)
        assert "restored of-rank-1" in made.log(job).decode()
