"""The launch: what a member runs, once all members can reach each other."""

from dataclasses import replace

from forge_worker.gang.address import interface_of
from forge_worker.gang.launchers import LAUNCHERS, PER_GPU, LauncherUnable
from forge_worker.gang.members import Gang, Peer
from forge_worker.gang.variables import variables
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
