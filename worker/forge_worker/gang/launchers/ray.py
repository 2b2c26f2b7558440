"""Ray: a cluster that lives as long as the job, on whose head the job's command runs."""

from pathlib import Path, PurePath

from forge_worker.gang.launchers.launcher import Launch
from forge_worker.gang.members import Gang
from forge_worker.inside import ray_cluster
from forge_worker.runners.process.private_ray import store_bytes

# Of the job's memory: as Ray's own default is of a machine's.
TASKS = 0.7


def launch(gang: Gang, command: tuple[str, ...], control: PurePath) -> Launch:
    """Return the program that starts or joins the cluster; on rank 0 it runs the command.

    `ray.init()` finds the cluster by RAY_ADDRESS, and proves by the run's secret that it belongs to
    it.
    """
    file = Path(ray_cluster.__file__)
    head = ("head", str(gang.nodes), *_options(gang), "--", *command)
    part = head if gang.rank == 0 else ("member", *_options(gang))
    return Launch(
        ("python3", str(control / file.name), *part),
        env={"RAY_ADDRESS": f"{gang.master.address}:{gang.master_port}"},
        files={file.name: file.read_text(encoding="utf-8")},
        secrets={"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": gang.secret},
    )


def _options(gang: Gang) -> tuple[str, ...]:
    own = gang.own
    memory = (
        f"--object-store-memory={store_bytes(own.memory_mb)}",
        f"--memory={int((own.memory_mb << 20) * TASKS)}",
    )
    return (
        f"--node-ip-address={own.address}",
        f"--num-cpus={max(1, int(own.cpus))}",
        f"--num-gpus={own.gpus}",
        "--disable-usage-stats",
        *(memory if own.memory_mb else ()),
    )
