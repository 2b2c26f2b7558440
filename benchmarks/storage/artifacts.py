"""Many small artifacts."""

import time
from pathlib import Path

from forge_worker.job_io.artifacts import ArtifactKeeper

from benchmarks.storage.bed import LIMIT_MB, Way, way


def small_artifacts(
    root: Path, count: int, *, over_http: bool, store_url: str | None
) -> tuple[float, float, float]:
    """Store files of 4 bytes; return the seconds, and CPU seconds of worker and server."""
    with way(root, over_http=over_http, store_url=store_url) as made:
        attempt, objects = made.attempt()
        for number in range(count):
            (attempt.folders.output / f"{number:05}").write_text("abcd")
        keeper = ArtifactKeeper(attempt, objects, made.gateway, LIMIT_MB)
        served = _cpu_s(made)
        began, busy = time.monotonic(), time.process_time()
        assert keeper.store() == count
        took, busy = time.monotonic() - began, time.process_time() - busy
        served = _cpu_s(made) - served
    return took, busy, served


def _cpu_s(made: Way) -> float:
    if made.server is None:
        return 0.0
    times = made.server.cpu_times()
    return times.user + times.system
