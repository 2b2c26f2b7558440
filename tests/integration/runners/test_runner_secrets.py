"""How a job gets its secrets from each runner, and who else does not."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import psutil
import pytest
from support.workers.runners import KINDS, Bench, make_runner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AWKWARD = 'it\'s $HOME\n"two" lines; `id` \\ ü'
TELLS = """
import os, pathlib, threading
print(os.environ["FIRST"], os.environ["AWKWARD"], sep="|", flush=True)
file = pathlib.Path("/forge/secrets")
print("left:", file.read_text() if file.exists() else "", flush=True)
while not os.path.exists("go"):
    threading.Event().wait(0.05)
"""


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(make_runner(request.param), tmp_path)
    yield bench
    bench.close()


def test_secrets_are_variables_that_only_the_job_sees(bench: Bench) -> None:
    secrets = {"FIRST": "first-secret", "AWKWARD": AWKWARD}
    job = bench.python(TELLS, secrets=secrets, env={"FIRST": "plain"})
    job.expect(b"left: \n")
    assert f"first-secret|{AWKWARD}".encode() in job.output
    seen = " ".join(
        word for p in psutil.process_iter(["cmdline"]) for word in p.info["cmdline"] or []
    )
    seen += str(job.spec)
    if bench.runner.kind == "docker":
        inspected = ["docker", "inspect", job.spec.name]
        seen += subprocess.run(inspected, capture_output=True, text=True, check=True).stdout
    seen += " ".join(
        path.read_text(errors="replace")
        for path in job.spec.log_path.parent.rglob("*")
        if path.is_file() and path != job.spec.log_path
    )
    assert "first-secret" not in seen
    assert '"two" lines' not in seen
    (job.spec.work_dir / "go").touch()
    assert job.result().code == 0
