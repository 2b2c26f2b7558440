"""A worker measures its machine once, directly and over HTTP, and reports the result."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from forge_worker.machine.speed import FILE
from support.warm.process import Warm
from support.workers.http_bed import http_bed
from support.workers.worker import Bed, bed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["direct", "http"])
def made(request: pytest.FixtureRequest, tmp_path: Path, database_url: str) -> Iterator[Bed]:
    opened = bed("process", tmp_path, database_url) if request.param == "direct" else None
    with opened or http_bed(tmp_path, database_url) as one:
        yield one


def profiled(made: Bed, code: int = 0) -> tuple[str, str]:
    """Run `forge-worker --profile-machine` in the folder of worker `one`."""
    with Warm(
        "forge_worker.main",
        ["forge-worker", "--profile-machine", "--json"],
        env={**os.environ, **made.settings("one")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == code, err
    return out, err


def test_the_first_start_measures_and_later_ones_know(made: Bed) -> None:
    worker = made.worker(measure=True)
    (first,) = made.registry.workers()
    assert first["speed"]["cpu"]
    kept = (worker.folder / FILE).read_bytes()
    assert json.loads(kept)["speed"] == first["speed"]
    # Jobs would share the machine with the measurement.
    assert "stop" in profiled(made, code=1)[1]
    worker.leave()
    again = made.worker(measure=True)
    assert (worker.folder / FILE).read_bytes() == kept
    assert made.registry.workers()[0]["speed"] == first["speed"]
    again.leave()
    told = json.loads(profiled(made)[0])
    assert json.loads((worker.folder / FILE).read_bytes())["speed"] == told
    # Without the setting, what is known is reported too.
    made.worker()
    assert made.registry.workers()[0]["speed"] == told
