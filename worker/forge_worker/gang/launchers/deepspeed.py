"""DeepSpeed's launcher, without ssh: it runs on each machine for the processes there."""

from pathlib import PurePath

from forge_worker.gang.launchers.launcher import Launch, each, script
from forge_worker.gang.members import Gang

HOSTS = "hostfile"


def launch(gang: Gang, command: tuple[str, ...], control: PurePath) -> Launch:
    """Return DeepSpeed's command, and its list of hosts, whose names are only labels.

    It asks ssh for the master's address unless it is told.
    """
    slots = each(gang, "deepspeed")
    return Launch(
        (
            "deepspeed",
            f"--hostfile={control / HOSTS}",
            "--no_ssh",
            f"--node_rank={gang.rank}",
            f"--master_addr={gang.master.address}",
            f"--master_port={gang.master_port}",
            *script(command, "--no_python"),
        ),
        env={} if gang.own.gpus else {"DS_ACCELERATOR": "cpu"},
        files={HOSTS: "".join(f"node{peer.rank} slots={slots}\n" for peer in gang.peers)},
    )
