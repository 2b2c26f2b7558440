"""The exact command of each launcher."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pytest
from forge_worker.gang.launchers import LAUNCHERS, LauncherUnable
from forge_worker.gang.members import Gang
from support.gangs.peers import gang, peer

if TYPE_CHECKING:
    from forge_worker.gang.launchers import Launch

CONTROL = PurePosixPath("/forge/control")
SCRIPT = ("train.py", "--epochs", "3")


def launch(name: str, of: Gang, *command: str) -> Launch:
    return LAUNCHERS[name](of, command or SCRIPT, CONTROL)


def test_none_runs_the_command_as_it_is() -> None:
    assert launch("none", gang(1), "./program", "a b").command == ("./program", "a b")


def test_torchrun_keeps_the_ranks_and_restarts_nothing() -> None:
    said = launch("torchrun", gang(1, nodes=4, gpus=8, vendor="nvidia"))
    assert said.command == (
        "torchrun",
        "--nnodes=4",
        "--nproc-per-node=8",
        "--node-rank=1",
        "--rdzv-backend=static",
        "--master-addr=10.0.0.5",
        "--master-port=29500",
        "--local-addr=10.0.0.6",
        "--max-restarts=0",
        *SCRIPT,
    )
    assert (said.env, said.files) == ({}, {})


def test_torchrun_starts_one_process_on_a_machine_without_gpus() -> None:
    assert "--nproc-per-node=1" in launch("torchrun", gang()).command


@pytest.mark.parametrize(
    ("launcher", "flag"),
    [("torchrun", "--no-python"), ("accelerate", "--no_python"), ("deepspeed", "--no_python")],
)
@pytest.mark.parametrize("command", [("python3", "-m", "pkg.train"), ("./train", "--lr", "1")])
def test_a_command_that_is_no_script_runs_as_it_is(
    launcher: str, flag: str, command: tuple[str, ...]
) -> None:
    assert launch(launcher, gang(), *command).command[-len(command) - 1 :] == (flag, *command)


@pytest.mark.parametrize(("gpus", "kind"), [(0, ["--cpu"]), (1, []), (2, ["--multi_gpu"])])
def test_accelerate_on_one_machine_is_told_of_several_gpus_only_if_there_are(
    gpus: int, kind: list[str]
) -> None:
    """It refuses --multi_gpu for a single process."""
    command = launch("accelerate", gang(nodes=1, gpus=gpus, vendor="nvidia")).command
    assert [word for word in command if word in {"--cpu", "--multi_gpu"}] == kind
    assert f"--num_processes={max(1, gpus)}" in command


def test_accelerate_is_told_everything_and_reads_no_configuration_of_the_image() -> None:
    said = launch("accelerate", gang(1, nodes=2, gpus=4, vendor="nvidia"))
    assert said.command == (
        "accelerate",
        "launch",
        "--config_file=/forge/control/accelerate.yaml",
        "--multi_gpu",
        "--num_machines=2",
        "--num_processes=8",
        "--machine_rank=1",
        "--main_process_ip=10.0.0.5",
        "--main_process_port=29500",
        "--same_network",
        "--rdzv_backend=static",
        "--mixed_precision=no",
        "--dynamo_backend=no",
        *SCRIPT,
    )
    assert said.files == {"accelerate.yaml": 'distributed_type: "NO"\n'}
    assert "--cpu" in launch("accelerate", gang()).command


def test_deepspeed_needs_neither_ssh_nor_host_names() -> None:
    said = launch("deepspeed", gang(1, nodes=3, gpus=2, vendor="nvidia"))
    world = said.command[4].removeprefix("--world_info=")
    assert json.loads(base64.urlsafe_b64decode(world)) == {
        f"node{rank}": [0, 1] for rank in (0, 1, 2)
    }
    assert said.command == (
        "python3",
        "-u",
        "-m",
        "deepspeed.launcher.launch",
        f"--world_info={world}",
        "--node_rank=1",
        "--master_addr=10.0.0.5",
        "--master_port=29500",
        *SCRIPT,
    )
    assert (said.env, said.files) == ({}, {})
    assert launch("deepspeed", gang()).env == {"DS_ACCELERATOR": "cpu"}
    # It would stand between a program and the program's own arguments.
    assert "--no_local_rank" in launch("deepspeed", gang(), "python", "-m", "train").command


@pytest.mark.parametrize("launcher", ["accelerate", "deepspeed"])
def test_a_launcher_that_divides_evenly_refuses_unlike_machines(launcher: str) -> None:
    uneven = Gang(0, (peer(0, gpus=8, vendor="nvidia"), peer(1, gpus=4, vendor="nvidia")))
    with pytest.raises(LauncherUnable, match="gpu-0: 8, gpu-1: 4"):
        launch(launcher, uneven)
    assert "--nproc-per-node=8" in launch("torchrun", uneven).command


def test_mpirun_runs_on_rank_0_for_all_processes_and_its_daemons_on_the_others() -> None:
    mixed = (peer(0, gpus=2, vendor="nvidia"), peer(1, gpus=1, vendor="nvidia"))
    head, other = (launch("mpirun", Gang(rank, mixed), "./solve", "a b") for rank in (0, 1))
    assert head.command == (
        *("python3", "/forge/control/mpi.py", "head", "forge-rank-0:2,forge-rank-1:1"),
        *("./solve", "a b"),
    )
    assert other.command == ("python3", "/forge/control/mpi.py", "member", "1")
    assert head.files == other.files
    assert head.secrets == other.secrets
    assert head.secrets["FORGE_GANG_SECRET"] not in repr(head)


def test_another_run_of_mpirun_has_another_secret() -> None:
    first, second = (launch("mpirun", gang(0, nonce=digit * 32)).secrets for digit in "01")
    assert first != second


RAY = (
    "--num-cpus=6",
    "--num-gpus=2",
    "--disable-usage-stats",
    # Of the job's memory, not the machine's.
    f"--object-store-memory={int(0.3 * (1000 << 20))}",
    f"--memory={int(0.7 * (1000 << 20))}",
)


def test_ray_runs_the_command_on_rank_0_and_joins_its_cluster_from_the_others() -> None:
    members = gang(0, nodes=3, gpus=2, cpus=6.5, memory_mb=1000)
    said = launch("ray", members, "python", "tune.py", "a b")
    assert said.command == (
        *("python3", "/forge/control/ray_cluster.py", "head", "3", "--node-ip-address=10.0.0.5"),
        *(*RAY, "--", "python", "tune.py", "a b"),
    )
    assert said.env == {"RAY_ADDRESS": "10.0.0.5:29500"}
    other = launch("ray", replace(members, rank=2), "python", "tune.py", "a b")
    assert other.command == (
        *("python3", "/forge/control/ray_cluster.py", "member", "--node-ip-address=10.0.0.7"),
        *RAY,
    )
    assert other.files == said.files


def test_a_cluster_of_ray_demands_the_secret_of_its_own_run() -> None:
    first, other, next_run = (
        launch("ray", gang(rank, nonce=digit * 32)).secrets
        for rank, digit in ((0, "0"), (1, "0"), (0, "1"))
    )
    assert first == other
    assert first["RAY_AUTH_MODE"] == "token"
    assert first["RAY_AUTH_TOKEN"] not in ("", next_run["RAY_AUTH_TOKEN"])


def test_a_member_of_unknown_memory_leaves_it_to_ray() -> None:
    said = launch("ray", gang(1, memory_mb=0)).command
    assert not any("memory" in word for word in said)
