"""The variables by which a job learns its place in the gang."""

from forge_worker.gang.address import interface_of, local_address
from forge_worker.gang.members import Gang


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
