"""Hugging Face Accelerate's launcher."""

from pathlib import PurePath

from forge_worker.gang.launchers.launcher import Launch, each, script
from forge_worker.gang.members import Gang

CONFIG = "accelerate.yaml"


def launch(gang: Gang, command: tuple[str, ...], control: PurePath) -> Launch:
    """Return `accelerate launch` with every choice spelled out.

    The configuration decides nothing. It replaces the one that the image's author may have left in
    a home folder, and accelerate refuses an empty one.
    """
    return Launch(
        (
            "accelerate",
            "launch",
            f"--config_file={control / CONFIG}",
            "--multi_gpu" if gang.own.gpus else "--cpu",
            f"--num_machines={gang.nodes}",
            f"--num_processes={each(gang, 'accelerate') * gang.nodes}",
            f"--machine_rank={gang.rank}",
            f"--main_process_ip={gang.master.address}",
            f"--main_process_port={gang.master_port}",
            "--same_network",
            "--rdzv_backend=static",
            "--mixed_precision=no",
            "--dynamo_backend=no",
            *script(command, "--no_python"),
        ),
        files={CONFIG: 'distributed_type: "NO"\n'},
    )
