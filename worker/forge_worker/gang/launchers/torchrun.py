"""torchrun, with its static rendezvous."""

from pathlib import PurePath

from forge_worker.gang.launchers.launcher import Launch, script
from forge_worker.gang.members import Gang


def launch(gang: Gang, command: tuple[str, ...], control: PurePath) -> Launch:  # noqa: ARG001  as Launcher
    """Return torchrun's command.

    The dynamic rendezvous would choose ranks of its own, and guess which machine is the master from
    host names. Restarts are the queue's business: those of a launcher would multiply them.
    """
    return Launch(
        (
            "torchrun",
            f"--nnodes={gang.nodes}",
            f"--nproc-per-node={gang.own.processes}",
            f"--node-rank={gang.rank}",
            "--rdzv-backend=static",
            f"--master-addr={gang.master.address}",
            f"--master-port={gang.master_port}",
            f"--local-addr={gang.own.address}",
            "--max-restarts=0",
            *script(command, "--no-python"),
        )
    )
