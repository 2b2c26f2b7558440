"""Weights & Biases: `run = init(project="digits")` instead of `wandb.init(project="digits")`."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import threading
from contextlib import suppress
from functools import wraps
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forge_worker import job
from forge_worker.integrations import group, tracked

if TYPE_CHECKING:
    from collections.abc import Callable

# How long a run may take to finish when the job must stop.
FINISH_S = 10.0
# W&B has no bound for the end of a run. Its bound for the start is 90 s.
END_S = 60.0
INIT_S = 30
OFFLINE = ("offline", "dryrun")


def init(**given: Any) -> Any:  # noqa: ANN401 - wandb's own
    """Call `wandb.init` for the job's run, which every attempt resumes, and return the run.

    The id, name, group and parameters are the job's unless they are given. On other ranks than 0,
    the run records nothing. Offline, or if W&B does not answer at the start, its files are in the
    checkpoint folder and become artifacts, and numbers are reported as the job's metrics too: W&B
    writes its file seldom, so it is finished when the job is told to stop.
    """
    import wandb  # type: ignore[import-not-found,unused-ignore]

    if group.rank() != 0:
        return wandb.init(mode="disabled")
    name = tracked.name()
    ours = {"id": name, "resume": "allow", "name": name, "group": tracked.group()} if name else {}
    run = _begun(wandb, {**ours, "config": tracked.parameters(), **given})
    tracked.link("wandb", run.url)

    def finish() -> None:
        run.finish()
        # Only now is its file complete.
        wandb.teardown()

    tracked.before_a_stop(finish, FINISH_S)
    if name and getattr(run.settings, "mode", "") in OFFLINE:
        _mirror(wandb, run)
        atexit.register(_keep, Path(run.dir).parent.parent, finish)
    elif name:
        atexit.register(_finish_in_time, Path(run.dir).parent, finish)
    return run


def _begun(wandb: Any, given: dict[str, Any]) -> Any:  # noqa: ANN401 - the module, its run
    if _asks_for_offline(given):
        return wandb.init(**{**_place(), **given})
    os.environ.setdefault("WANDB_INIT_TIMEOUT", str(INIT_S))
    try:
        return wandb.init(**given)
    except wandb.errors.CommError as error:
        if tracked.name() is None:
            raise
        tracked.note(f"W&B does not answer, so this attempt's run is offline: {error}")
        # What is left of the first one would still have its id.
        wandb.teardown()
        return wandb.init(**{**_place(), **given, "mode": "offline"})


def _asks_for_offline(given: dict[str, Any]) -> bool:
    """Tell whether the call, its settings or the environment want no server."""
    settings = given.get("settings") or {}
    own = settings.get("mode") if isinstance(settings, dict) else getattr(settings, "mode", "")
    modes = [given["mode"]] if given.get("mode") else [own, os.environ.get("WANDB_MODE")]
    return any(mode in OFFLINE for mode in modes)


def _place() -> dict[str, str]:
    """Return the folder for the files of an offline run, unless the job chose one."""
    if tracked.name() is None or "WANDB_DIR" in os.environ:
        return {}
    return {"dir": str(job.checkpoint_dir())}


def _mirror(wandb: Any, run: Any) -> None:  # noqa: ANN401 - as above
    """Report what is logged as the job's metrics: W&B's file is lost with its machine."""
    logs = run.log

    @wraps(logs)
    def mirrored(data: Any, step: int | None = None, *rest: Any, **more: Any) -> Any:  # noqa: ANN401 - W&B's
        with suppress(Exception):
            job.report(**{**_numbers(data), "step": run.step if step is None else step})
        return logs(data, step, *rest, **more)

    run.log = mirrored
    if wandb.run is run:
        wandb.log = mirrored


def _numbers(data: Any, prefix: str = "") -> dict[str, object]:  # noqa: ANN401 - W&B's
    """Return the numbers of a dictionary, by W&B's names for those within others."""
    numbers: dict[str, object] = {}
    for name, value in data.items():
        plain = value.item() if hasattr(value, "item") and getattr(value, "size", 1) == 1 else value
        if isinstance(plain, dict):
            numbers.update(_numbers(plain, f"{prefix}{name}."))
        elif isinstance(plain, Real):
            numbers[f"{prefix}{name}"] = plain
    return numbers


def _finish_in_time(folder: Path, finish: Callable[[], None]) -> None:
    """Finish a run; if W&B does not answer, its files become artifacts."""
    thread = threading.Thread(target=finish, daemon=True)
    thread.start()
    thread.join(END_S)
    if not thread.is_alive():
        return
    for pid in _services():
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    with suppress(OSError):
        shutil.copytree(folder, job.output_dir() / "wandb" / folder.name, dirs_exist_ok=True)
    tracked.note(
        "W&B did not take the end of the run in time. Its files are artifacts;"
        " `wandb sync` sends them"
    )


def _services() -> list[int]:
    """Return W&B's own processes, which wait for its server after the program has ended."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = stat.read_text(errors="replace").partition("(")[2].rpartition(")")
            if name.startswith("wandb-core") and int(rest.split()[1]) == os.getpid():
                pids.append(int(stat.parent.name))
    return pids


def _keep(runs: Path, finish: Callable[[], None]) -> None:
    """Finish an offline run, and make its files artifacts, with those of earlier attempts."""
    finish()
    for folder in runs.glob("offline-run-*"):
        with suppress(OSError):
            shutil.copytree(folder, job.output_dir() / "wandb" / folder.name, dirs_exist_ok=True)
    tracked.note(
        "W&B's files are artifacts: download them, and send them with"
        " `wandb sync wandb/offline-run-*`"
    )
