"""The container engine of this machine, as `forge doctor` shows it."""

import os
import textwrap
from importlib.util import find_spec

from forge_client.backend import Check, CheckStanding

NAME = "containers"
WIDEST = 90


def engine_check() -> Check:
    """Return whether jobs can run in containers here, and what to do otherwise."""
    if find_spec("docker") is None:
        detail = "not looked for: this installation runs no jobs"
        hint = "install the extra `worker` to run jobs here"
        return Check(name=NAME, standing=CheckStanding.WARN, detail=detail, hint=hint)
    from forge_worker.commands.doctor import engine_found  # noqa: PLC0415 - only with the extra

    kind, fault, remedy = engine_found()
    if kind:
        return Check(name=NAME, standing=CheckStanding.OK, detail=kind)
    hint = f"{remedy}; jobs run as processes until then"
    hint += " (you are root)" if os.geteuid() == 0 else ""
    detail = textwrap.shorten(fault, WIDEST, placeholder=" …")
    return Check(name=NAME, standing=CheckStanding.WARN, detail=detail, hint=hint)
