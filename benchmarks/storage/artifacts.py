"""Many small artifacts over HTTP."""

import time
from pathlib import Path

from forge_worker.job_io.artifacts import ArtifactKeeper

from benchmarks.storage.bed import LIMIT_MB, way


def small_artifacts(root: Path, count: int) -> tuple[float, float, float]:
    """Store files of 4 bytes; return the seconds, and CPU seconds of worker and server."""
    with way(root, over_http=True) as made:
        attempt, objects = made.attempt()
        for number in range(count):
            (attempt.folders.output / f"{number:05}").write_text("abcd")
        keeper = ArtifactKeeper(attempt, objects, made.gateway, LIMIT_MB)
        assert made.server is not None
        served = made.server.cpu_times()
        began, busy = time.monotonic(), time.process_time()
        assert keeper.store() == count
        took, busy = time.monotonic() - began, time.process_time() - busy
        now = made.server.cpu_times()
    return took, busy, now.user + now.system - served.user - served.system
