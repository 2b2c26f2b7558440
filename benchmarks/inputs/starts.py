"""How long jobs take that start with an input which the machine has, beside jobs without one."""

import json
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.commands.bed import forge, running
from benchmarks.commands.measure import ROOT, Checkout

SECRETS = {"AWS_ACCESS_KEY_ID": "xxxx", "AWS_SECRET_ACCESS_KEY": "xxxx"}


def starts(folder: Path, address: str, source: str, pairs: int, image: str | None) -> float:
    """Return the median of how many times the time of a job without an input one with it takes.

    The time is that from the grant to the end of a job that does nothing, in a process or in a
    container of an `image`.
    """
    folder.mkdir()
    secrets = folder / "secrets"
    secrets.mkdir()
    for name, text in {**SECRETS, "AWS_ENDPOINT_URL": address}.items():
        (secrets / name).write_text(text)
        (secrets / name).chmod(0o600)
    variables = {"FORGE_SECRETS_DIR": str(secrets), "FORGE_RUNNER": "process"}
    if image:
        variables |= {"FORGE_RUNNER": "docker", "FORGE_DEFAULT_IMAGE": image}
    with running(folder, Checkout("now", ROOT), variables) as bed:
        env = bed.ways["a forge up"]
        run = partial(_took, bed.project, env)
        given = ("--input", f"data={source}")
        run(given)
        both = [(run(given), run()) for _ in range(pairs)]
    return median(one / other for one, other in both)


def _took(project: Path, env: Mapping[str, str], given: tuple[str, ...] = ()) -> float:
    words = ("submit", str(project), "--wait", *given, "--", "true")
    forge(*words, env=env)
    (attempt,) = json.loads(forge("show", "@last", "-o", "json", env=env))["attempts"]
    begin, end = (datetime.fromisoformat(attempt[name]) for name in ("claimed_at", "finished_at"))
    return (end - begin).total_seconds()
