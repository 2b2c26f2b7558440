"""DeepSpeed's launcher of one machine's processes, which its command would start by ssh."""

import base64
import json
from pathlib import PurePath

from forge_worker.gang.launchers.launcher import Launch, each, script
from forge_worker.gang.members import Gang

# Otherwise the number would follow the program and precede its arguments.
PLAIN = "--no_local_rank"


def launch(gang: Gang, command: tuple[str, ...], control: PurePath) -> Launch:  # noqa: ARG001  as Launcher
    """Return the launcher and its list of machines, whose names are only labels.

    The command `deepspeed` would leave no time to save a checkpoint: it ends at once when it is
    told to stop, and everything below it with it.
    """
    slots = each(gang, "deepspeed")
    world = {f"node{peer.rank}": list(range(slots)) for peer in gang.peers}
    words = script(command, "--no_python")
    return Launch(
        (
            *("python3", "-u", "-m", "deepspeed.launcher.launch"),
            f"--world_info={base64.urlsafe_b64encode(json.dumps(world).encode()).decode()}",
            f"--node_rank={gang.rank}",
            f"--master_addr={gang.master.address}",
            f"--master_port={gang.master_port}",
            *((PLAIN,) if words[0] == "--no_python" else ()),
            *words,
        ),
        env={} if gang.own.gpus else {"DS_ACCELERATOR": "cpu"},
    )
