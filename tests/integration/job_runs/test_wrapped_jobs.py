"""Jobs whose program runs below a shell lose nothing, however they are stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from support.waiting import Eventually
    from support.workers.worker import Bed

# Saves only when it is asked to stop, and is done when it finds what it saved.
SAVES = """
import os, pathlib, signal, sys
state = pathlib.Path(os.environ["FORGE_CHECKPOINT_DIR"], "state")
if state.exists():
    os.write(1, b"resumed\\n")
    sys.exit()
def leave(*_):
    state.write_text("x" * 100_000)
    os.write(1, b"saved\\n")
    sys.exit(143)
signal.signal(signal.SIGTERM, leave)
os.write(1, b"up\\n")
while True: signal.pause()
"""
WRAPPED = 'set -o pipefail; "$1" -c "$0" | tee -a log; code=$?; echo rest; exit $code'


def wrapped(made: Bed, **fields: Any) -> int:  # noqa: ANN401  fields of all types
    return made.submit(
        "bash", "-c", WRAPPED, SAVES, made.python, checkpoint_interval_s=3600, **fields
    )


def test_program_below_a_shell_saves_at_every_stop(both: Bed, eventually: Eventually) -> None:
    first = both.worker(lease_ttl_s=60)
    jobs = {name: wrapped(both) for name in ("preempted", "cancelled", "without an agent")}
    jobs["timeout"] = wrapped(both, timeout_s=5, max_failures=0)
    for job in jobs.values():
        both.says(job, "up")
    both.queue.preempt(jobs["preempted"])
    both.queue.cancel(jobs["cancelled"])
    assert both.ended(jobs["cancelled"])["state"] == "cancelled"
    assert both.ended(jobs["timeout"])["reason"] == "timeout"
    both.succeeds(jobs["preempted"])
    first.kill()
    both.queue.preempt(jobs["without an agent"])
    second = both.worker(lease_ttl_s=60)
    both.succeeds(jobs["without an agent"])
    for name in ("preempted", "without an agent"):
        assert both.reasons(jobs[name]) == ["preempted", "succeeded"]
        assert both.log(jobs[name], 1) == b"up\nsaved\n"
        assert both.log(jobs[name], 2) == b"resumed\nrest\n"
    for name in ("cancelled", "timeout"):
        assert both.log(jobs[name]) == b"up\nsaved\n"
    # A worker that leaves stops its jobs too.
    last = wrapped(both)
    both.says(last, "up")
    assert second.leave() == 0
    both.worker("other")
    both.succeeds(last)
    assert both.log(last, 1) == b"up\nsaved\n"
    eventually(lambda: not list(second.folder.glob("jobs/*")))
