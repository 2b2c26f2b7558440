"""No launcher: the job's own program runs once on each machine, and reads the variables."""

from pathlib import PurePath

from forge_worker.gang.launchers.launcher import Launch
from forge_worker.gang.members import Gang


def launch(gang: Gang, command: tuple[str, ...], control: PurePath) -> Launch:  # noqa: ARG001  as Launcher
    """Return the command as it was submitted."""
    return Launch(command)
