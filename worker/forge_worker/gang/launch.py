"""The launch: what a member runs, and its variables, once all members can reach each other."""

from dataclasses import replace

from forge_worker.gang.address import interface_of, local_address
from forge_worker.gang.launchers import LAUNCHERS, PER_GPU, LauncherUnable
from forge_worker.gang.members import Gang, Peer
from forge_worker.runners.runner import Runner, RunSpec

EVERYWHERE = "0.0.0.0"  # noqa: S104  behind an address translation only


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
    told = variables(gang, per_gpu=launcher in PER_GPU)
    return replace(
        spec,
        command=launch.command,
        env={**spec.env, **told, **launch.env},
        secrets={**spec.secrets, **launch.secrets},
        host_network=not gang.own.publishes,
        publishes=_published(gang.own),
    )


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
