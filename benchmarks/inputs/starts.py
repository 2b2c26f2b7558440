"""How long jobs take that start with an input which the machine has, beside jobs without one."""

import json
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from statistics import median

from benchmarks.commands.bed import forge, running
from benchmarks.commands.measure import ROOT, Checkout

SECRETS = {"AWS_ACCESS_KEY_ID": "xxxx", "AWS_SECRET_ACCESS_KEY": "xxxx"}


def starts(folder: Path, address: str, source: str, pairs: int) -> float:
    """Return the median of how many times the time of a job without an input one with it takes.

    The time is that from the grant to the end of a job that does nothing.
    """
    folder.mkdir()
    secrets = folder / "secrets"
    secrets.mkdir()
    for name, text in {**SECRETS, "AWS_ENDPOINT_URL": address}.items():
        (secrets / name).write_text(text)
        (secrets / name).chmod(0o600)
    os.environ |= {"FORGE_SECRETS_DIR": str(secrets), "FORGE_RUNNER": "process"}
    variables = {n: os.environ[n] for n in ("FORGE_SECRETS_DIR", "FORGE_RUNNER")}
    with running(folder, Checkout("now", ROOT), variables) as bed:
        env = bed.ways["a forge up"]
        given = ("--input", f"data={source}")
        _took(bed.project, env, given)
        both = [(_took(bed.project, env, given), _took(bed.project, env)) for _ in range(pairs)]
    return median(one / other for one, other in both)


def _took(project: Path, env: Mapping[str, str], given: tuple[str, ...] = ()) -> float:
    words = ("submit", str(project), "--wait", *given, "--", "true")
    forge(*words, env=env)
    (attempt,) = json.loads(forge("show", "@last", "-o", "json", env=env))["attempts"]
    begin, end = (datetime.fromisoformat(attempt[name]) for name in ("claimed_at", "finished_at"))
    return (end - begin).total_seconds()
