"""Jobs that hang: each is stopped by its own stall rule, and resumes from its checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.nvml.fake import FakeNvml
from support.workers.worker import bed

if TYPE_CHECKING:
    from pathlib import Path

HANGS = """
import json, os, pathlib, sys, threading
kept = pathlib.Path(os.environ["FORGE_CHECKPOINT_DIR"], "kept")
if kept.exists():
    sys.exit(0)
kept.write_text("far")
metrics = open(os.environ["FORGE_METRICS_FILE"], "a", buffering=1)
step = 0
while True:
    step += sys.argv[1] != "no_progress_s"
    print(json.dumps({"step": step}), file=metrics)
    if sys.argv[1] != "silent_log_s":
        print("still here", flush=True)
    threading.Event().wait(0.1)
"""
LACKS = {
    "silent_log_s": "no output for 3 s",
    "no_progress_s": "no progress reported for 3 s",
    "idle_gpu_s": "no GPU busier than 5% for 3 s",
}


def test_each_rule_stops_a_job_that_goes_on_from_its_checkpoint(
    tmp_path: Path, database_url: str, nvml: FakeNvml
) -> None:
    nvml.gpu("GPU-idle")
    with bed("process", tmp_path, database_url, environment=nvml.environment) as process:
        process.worker(sample_s=0.5)
        jobs = {rule: process.script(HANGS, rule, **asked(rule)) for rule in LACKS}
        for rule, job in jobs.items():
            process.succeeds(job)
            reasons = process.reasons(job)
            assert (reasons[0], reasons[-1], set(reasons[:-1])) == (
                "stalled",
                "succeeded",
                {"stalled"},
            )
            assert process.jobs.attempts(job)[0]["detail"] == LACKS[rule]
            assert f"stalled: {LACKS[rule]}" in process.log(job, 1).decode()


def asked(rule: str) -> dict[str, Any]:
    """Return a request with only one stall rule for its job; the others are set to years."""
    rules = {**dict.fromkeys(LACKS, 1e6), rule: 3.0}
    if rule != "idle_gpu_s":
        del rules["idle_gpu_s"]
    gpus = int(rule == "idle_gpu_s")
    needs = {"cpus": 0.5, "memory_mb": 256, "disk_mb": 500, "gpus": gpus}
    return {"stall": rules, "resources": needs, "max_failures": 20}
