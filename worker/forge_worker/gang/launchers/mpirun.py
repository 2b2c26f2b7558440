"""mpirun of Open MPI or MPICH, without ssh: each member starts the daemon of its own machine."""

from pathlib import Path, PurePath

from forge_worker.gang.launchers.launcher import Launch
from forge_worker.gang.members import Gang
from forge_worker.inside import mpi


def launch(gang: Gang, command: tuple[str, ...], control: PurePath) -> Launch:
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
