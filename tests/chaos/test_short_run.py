"""A short run of the chaos suite: small, with a fixed seed, beside the other tests.

On a developer's machine, the run leaves out whatever the machine cannot do.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from chaos.__main__ import tell
from chaos.options import Options
from chaos.parts.own_containers import engine_may_run
from chaos.parts.pooler import pooler_is_here
from chaos.run import run
from support.services import require

SEED = 20_261_122


@pytest.mark.timeout(600)
def test_nothing_is_lost_done_twice_or_left_behind() -> None:
    if os.environ.get("CI"):
        require(pooler_is_here(), "PgBouncer (Debian's package pgbouncer)")
        require(engine_may_run(), "root, dockerd, and the tests' image")
    # Not below pytest's folder, which Postgres, running as another user, cannot enter.
    folder = Path(tempfile.mkdtemp(prefix="forge-chaos-"))
    folder.chmod(0o755)
    options = Options(
        seed=SEED, minutes=0.6, folder=folder, workers=7, jobs_per_s=0.9, gap_s=2.6, drain_s=50
    )
    outcome = run(options)
    tell(outcome, options)
    assert outcome.stories == []
    assert outcome.figures.faults >= 10
    assert outcome.figures.states["succeeded"] >= 10
