"""Many lines of metrics at once, and a queue that does not take them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from support.waiting import Eventually
    from support.workers.worker import Bed

LINES = 100_000
BURST = """
import json, os, pathlib, sys
with open(os.environ["FORGE_METRICS_FILE"], "a") as metrics:
    metrics.write('{"a":1}\\n' * int(sys.argv[1]) + '{"step":7,"total":8,"loss":0.5}\\n')
pathlib.Path(os.environ["FORGE_RESULT_FILE"]).write_text('{"good": 1}')
pathlib.Path(os.environ["FORGE_OUTPUT_DIR"], "model").write_text("good")
"""


def test_every_line_of_a_burst_is_stored(process: Bed) -> None:
    process.worker()
    job = process.script(BURST, str(LINES))
    process.succeeds(job)
    with psycopg.connect(process.database.url) as connection:
        rows = connection.execute(
            "SELECT lines, step, values FROM metric_span WHERE job_id = %s AND span = -1", [job]
        ).fetchall()
    sums = {"a": [LINES, 1, 1, LINES, 1], "loss": [1, 0.5, 0.5, 0.5, 0.5]}
    assert rows == [(LINES + 1, 7, sums)]
    assert b"metrics" not in process.log(job)


def test_a_job_whose_metrics_are_not_taken_ends_when_it_is_cancelled_and_says_what_is_lost(
    process: Bed, eventually: Eventually
) -> None:
    process.worker()
    with psycopg.connect(process.database.url) as other:
        other.execute("LOCK TABLE metric IN ACCESS EXCLUSIVE MODE")
        job = process.script(BURST, "20000")
        eventually(lambda: process.artifacts(job))
        eventually(lambda: process.job(job)["phase"] == "finishing")
        process.queue.cancel(job)
        process.succeeds(job)
    assert process.artifacts(job) == {"model": b"good"}
    said = process.log(job).decode()
    assert "20001 lines of metrics were not stored, after 0 that were: cancelled on request" in said
    result = process.jobs.result(job)
    assert result is not None
    assert result["values"] == {"good": 1}
