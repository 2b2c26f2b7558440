"""A worker measures its machine once, directly and over HTTP, and reports the result."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from forge_worker.machine.speed import FILE
from support.workers.asked import asked

if TYPE_CHECKING:
    import subprocess

    from support.workers.worker import Bed


def profiled(made: Bed, code: int = 0) -> subprocess.CompletedProcess[str]:
    return asked(made, "--profile-machine", "--json", code=code)


def test_the_first_start_measures_and_later_ones_know(each_way: Bed) -> None:
    worker = each_way.worker(measure=True)
    (first,) = each_way.registry.workers()
    assert first["speed"]["cpu"]
    kept = (worker.folder / FILE).read_bytes()
    assert json.loads(kept)["speed"] == first["speed"]
    # Jobs would share the machine with the measurement.
    assert "stop" in profiled(each_way, code=1).stderr
    worker.leave()
    again = each_way.worker(measure=True)
    assert (worker.folder / FILE).read_bytes() == kept
    assert each_way.registry.workers()[0]["speed"] == first["speed"]
    again.leave()
    told = json.loads(profiled(each_way).stdout)
    assert json.loads((worker.folder / FILE).read_bytes())["speed"] == told
    # Without the setting, what is known is reported too.
    each_way.worker()
    assert each_way.registry.workers()[0]["speed"] == told
