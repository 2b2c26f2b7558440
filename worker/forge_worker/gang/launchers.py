"""The launchers: each turns a job's command into what each machine of a gang runs."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

from forge_schema.model.errors import ForgeError
from forge_schema.model.states import Launcher as Name

from forge_worker.gang.address import interface_of, local_address
from forge_worker.gang.members import Gang, Peer
from forge_worker.inside import mpi, ray_cluster
from forge_worker.runners.process.runner import store_bytes
from forge_worker.runners.runner import Runner, RunSpec

CONFIG = "accelerate.yaml"

# Otherwise the number would follow the program and precede its arguments.
PLAIN = "--no_local_rank"

# Of the job's memory: as Ray's own default is of a machine's.
TASKS = 0.7

EVERYWHERE = "0.0.0.0"  # noqa: S104  behind an address translation only


@dataclass(frozen=True, slots=True)
class Launch:
    """What one member runs: a command, more variables, and files for its control folder by name.

    The files are executable. `secrets` are variables that no list of processes shows.
    """

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


# Of the gang as one member sees it, the job's command, and the control folder's path in the job.
Launcher = Callable[[Gang, tuple[str, ...], PurePath], Launch]


class LauncherUnable(ForgeError):
    """This launcher cannot start the job in this gang."""


def script(command: tuple[str, ...], no_python: str) -> tuple[str, ...]:
    """Return a command for a launcher that expects a Python script; others follow `no_python`."""
    return command if command[0].endswith(".py") else (no_python, *command)


def each(gang: Gang, launcher: str) -> int:
    """Return the number of processes of each member.

    Raises:
        LauncherUnable: the members have different numbers of GPUs.
    """
    counts = {peer.processes for peer in gang.peers}
    if len(counts) > 1:
        text = ", ".join(f"{peer.worker}: {peer.processes}" for peer in gang.peers)
        raise LauncherUnable(
            f"{launcher} needs the same number of GPUs on each machine ({text})",
            hint="use --launcher torchrun",
        )
    return gang.own.processes


def torchrun(gang: Gang, command: tuple[str, ...], control: PurePath) -> Launch:  # noqa: ARG001  as Launcher
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


def accelerate(gang: Gang, command: tuple[str, ...], control: PurePath) -> Launch:
    """Return `accelerate launch` with every choice spelled out.

    The configuration decides nothing. It replaces the one that the image's author may have left in
    a home folder, and accelerate refuses an empty one.
    """
    processes = each(gang, "accelerate") * gang.nodes
    kind = "--multi_gpu" if gang.own.gpus else "--cpu"
    return Launch(
        (
            "accelerate",
            "launch",
            f"--config_file={control / CONFIG}",
            # A single process with a GPU is neither of both.
            *(() if gang.own.gpus and processes == 1 else (kind,)),
            f"--num_machines={gang.nodes}",
            f"--num_processes={processes}",
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


def deepspeed(gang: Gang, command: tuple[str, ...], control: PurePath) -> Launch:  # noqa: ARG001  as Launcher
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


def mpirun(gang: Gang, command: tuple[str, ...], control: PurePath) -> Launch:
    """Return the program that runs mpirun on rank 0, and its daemon on the others.

    The names of the hosts are only labels, so two members may have the same address.
    """
    file = Path(mpi.__file__)
    hosts = ",".join(f"{mpi.HOST}{peer.rank}:{peer.processes}" for peer in gang.peers)
    part = ("head", hosts, *command) if gang.rank == 0 else ("member", str(gang.rank))
    return Launch(
        ("python3", str(control / file.name), *part),
        files={file.name: file.read_text(encoding="utf-8")},
        secrets={mpi.SECRET: gang.secret},
    )


def ray(gang: Gang, command: tuple[str, ...], control: PurePath) -> Launch:
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


def none(gang: Gang, command: tuple[str, ...], control: PurePath) -> Launch:  # noqa: ARG001  as Launcher
    """Return the command as it was submitted."""
    return Launch(command)


LAUNCHERS: dict[str, Launcher] = {
    Name.TORCHRUN: torchrun,
    Name.ACCELERATE: accelerate,
    Name.DEEPSPEED: deepspeed,
    Name.MPIRUN: mpirun,
    Name.RAY: ray,
    Name.NONE: none,
}


# Those that start a process for each GPU.
PER_GPU = {Name.TORCHRUN, Name.ACCELERATE, Name.DEEPSPEED, Name.MPIRUN}


def launched(gang: Gang, spec: RunSpec, runner: Runner, launcher: str) -> RunSpec:
    """Return the spec of a member, started by a launcher; its files are written.

    Raises:
        LauncherUnable: this worker does not know the launcher, or it cannot start this gang.
        OSError: a file cannot be written.
    """
    if launcher not in LAUNCHERS:
        raise LauncherUnable(
            f"this worker does not know the launcher {launcher!r}",
            hint="update forge-worker on all machines",
        )
    launch = LAUNCHERS[launcher](gang, spec.command, runner.paths(spec).control_dir)
    for name, text in launch.files.items():
        (spec.control_dir / name).write_text(text, encoding="utf-8")
        (spec.control_dir / name).chmod(0o755)
    environment = variables(gang, per_gpu=launcher in PER_GPU)
    started = replace(
        spec,
        command=launch.command,
        env={**spec.env, **environment, **launch.env},
        secrets={**spec.secrets, **launch.secrets},
    )
    if gang.nodes == 1:
        # Its processes find each other on the loopback address of its own network.
        return started
    return replace(started, host_network=not gang.own.publishes, publishes=_published(gang.own))


def _published(own: Peer) -> tuple[str, int] | None:
    if not own.publishes:
        return None
    # Behind an address translation, no interface has the advertised address.
    return own.address if interface_of(own.address) else EVERYWHERE, own.program_port


def variables(gang: Gang, *, per_gpu: bool) -> dict[str, str]:
    """Return the variables of one member.

    If a launcher starts a process for each GPU (`per_gpu`), it replaces the ranks for each of them;
    what is set here is for the first.
    """
    sizes = [peer.processes if per_gpu else 1 for peer in gang.peers]
    rank = sum(sizes[: gang.rank])
    batches = gang.batches(per_gpu=per_gpu)
    return {
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(sum(sizes)),
        "LOCAL_WORLD_SIZE": str(sizes[gang.rank]),
        "NNODES": str(gang.nodes),
        "NODE_RANK": str(gang.rank),
        "MASTER_ADDR": gang.master.address,
        "MASTER_PORT": str(gang.master_port),
        "FORGE_BACKEND": gang.backend,
        "FORGE_GANG": gang.described(),
        "FORGE_SPEED_SHARE": f"{gang.shares(per_gpu=per_gpu)[rank]:.6g}",
        **({"FORGE_BATCH_SIZE_HINT": str(batches[rank])} if batches else {}),
        **({} if gang.own.publishes else _interface(gang)),
    }


def _interface(gang: Gang) -> dict[str, str]:
    """Return the variables that keep Gloo and NCCL on the network that was checked.

    Gloo would otherwise use the address of the machine's name, which is often the loopback's, and
    NCCL any bridge of a container engine.
    """
    own, master = gang.own.address, gang.master.address
    # Behind an address translation, no interface has the advertised address.
    name = interface_of(own) or interface_of(local_address(master) or "")
    return {} if not name else {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": f"={name}"}
