"""Supervision: waits for a running job, and stops it if necessary, within its window.

When it has ended, its resources are free, except for its disk: other jobs start while its output is
stored.
"""

from dataclasses import replace
from functools import partial
from math import inf
from signal import SIGKILL, SIGTERM, Signals
from threading import Thread
from time import time_ns

from forge_schema.model.quantities import duration_text
from forge_schema.model.states import Phase, Reason

from forge_worker.attempt import Stop
from forge_worker.clock import opening, seconds
from forge_worker.files.kills import kill
from forge_worker.files.safe_files import touch
from forge_worker.job_io.watches import stall_watches
from forge_worker.job_runs.job_state import keep_exit, keep_stop
from forge_worker.job_runs.parts import Parts
from forge_worker.loop import Loop
from forge_worker.runners.runner import SIGNAL_BASE, Exit, Handle

LOOK_S = 10.0
WATCH_S = 0.5


def supervise(parts: Parts, handle: Handle) -> Exit:
    """Wait for the job, and return how it ended; the loops around it end as well.

    What it leaves in an engine is removed after the report of its end, which need not wait for it.
    """
    if not (parts.attempt.adopted and handle.wait(0) is not None):
        parts.phases.enter(Phase.RUNNING)
    stored = parts.checkpoints
    loops: list[Loop] = [parts.metrics, stored.thinner]
    loops += stall_watches(parts.attempt, parts.usage, len(parts.slot.gpu_uuids))
    for loop in (stored, *loops):
        loop.share()
    parts.checkpoint_request.share(quick=True)
    loops.append(parts.checkpoint_request)
    good = False
    try:
        began_s = seconds()
        exited = _wait(parts, handle)
        stored.cut_short = _cut_short(parts, exited)
        _note_end(parts, exited, seen=seconds() - began_s > WATCH_S or not parts.attempt.adopted)
        good = succeeded(parts, exited)
        parts.keep(partial(keep_exit, parts.attempt.folders.root, exited))
        if exited.code is None:
            # The engine may not know its end, so some of it may live.
            handle.remove()
        else:
            parts.attempt.clear_away = handle.remove
        _free(parts, exited)
        return exited
    finally:
        for loop in (parts.logs, parts.disk, *loops):
            loop.end(parts.left_s())
        # After a success, do not wait for checkpoints that are still being stored.
        stored.end(0.0 if good else parts.left_s())


def _note_end(parts: Parts, exited: Exit, *, seen: bool) -> None:
    """Tell the checkpoints how the job ended; nobody has `seen` an end while no agent ran."""
    stored = parts.checkpoints
    stored.program.kill = kill(
        exited.void if exited.code is None else exited.code,
        out_of_memory=exited.oom_killed,
        asked_ns=stored.asked_ns,
        ended_ns=exited.at_ns or (time_ns() if seen else 0),
        caught=stored.stop_caught,
    )
    stored.program.over = True


def _cut_short(parts: Parts, exited: Exit) -> bool:
    """Tell whether the program may have been killed while it wrote.

    A launcher or a shell may hide that, so one that was told to stop must have exited with 0.
    """
    if parts.stopped_for is not None and exited.code != 0:
        return True
    return exited.code is None or exited.oom_killed or exited.code > SIGNAL_BASE


def succeeded(parts: Parts, exited: Exit) -> bool:
    """Tell whether a job ended successfully without being stopped."""
    return exited.code == 0 and not exited.oom_killed and parts.stopped_for is None


def _free(parts: Parts, exited: Exit) -> None:
    """Give back all but the disk of a job that has ended."""
    attempt, services, stop = parts.attempt, parts.services, parts.stopped_for
    if exited.code != 0 and parts.slot.gpu_uuids and stop is None:
        _blame_gpus(parts)
    services.sampler.last_look(parts.usage)
    if services.gate.needed:
        services.gate.leave(parts.gated(exited.code), attempt.note, parts.left_s())
    parts.keep(attempt.end)
    if stop is not None and stop.reason is Reason.RUN_ENDED:
        # Before its room is free, which may have to be kept for the next run.
        parts.phases.tell(Phase.FINISHING)
    # A preempted job is ready again once it is stored, and no other may have taken its place.
    if stop is None or stop.reason is not Reason.PREEMPTED:
        services.ended(attempt)


def _blame_gpus(parts: Parts) -> None:
    """Have a job that failed stop for its GPU's fault, which the driver may report late.

    The next job must not get this GPU, and a later agent could not tell whose fault it was.
    """
    parts.services.fault_watch.catch_up()
    stop = parts.attempt.stop
    if stop is not None and stop.reason is Reason.GPU_FAULT:
        parts.keep(partial(keep_stop, parts.attempt.folders.root, stop))


def _wait(parts: Parts, handle: Handle) -> Exit:
    attempt = parts.attempt
    limit_s, wake = attempt.grant.timeout_s, attempt.stopping.descriptor()
    until_s = inf if limit_s is None else attempt.started_s() + limit_s
    # A machine that sleeps may wake past the limit, so it is not one long wait.
    while (exited := handle.wait(min(LOOK_S, max(0.0, until_s - seconds())), wake)) is None:
        if seconds() >= until_s:
            attempt.request_stop(Stop(Reason.TIMEOUT, f"over {duration_text(limit_s or 0)}"))
        if attempt.stopping.is_set():
            return _stopped(parts, handle)
    return exited


def _stopped(parts: Parts, handle: Handle) -> Exit:
    """Stop the job: within its time, or at once if its lease belongs to another worker."""
    attempt = parts.attempt
    parts.stopped_for = stop = attempt.stop
    if stop is not None and not stop.lost:
        if attempt.grant.nodes > 1 and stop.reason is not Reason.RUN_ENDED:
            # The others hear of it at once, and store their last checkpoints too.
            parts.phases.enter(Phase.STOPPING)
        parts.keep(partial(keep_stop, attempt.folders.root, stop))
        touch(attempt.folders.control, attempt.folders.preempt.name)
        chosen = stop.reason in {Reason.PREEMPTED, Reason.RUN_ENDED}
        number = _preempt_signal(parts) if chosen else SIGTERM
        parts.checkpoints.stop_caught = handle.catches(number)
        parts.checkpoints.asked_ns = time_ns()
        _ask_to_stop(parts, handle, stop)
    while (exited := handle.wait(WATCH_S)) is None:
        if attempt.lost:
            handle.remove()
        elif seconds() >= _kill_s(parts):
            handle.signal(SIGKILL)
    return exited


def _ask_to_stop(parts: Parts, handle: Handle, stop: Stop) -> None:
    """Tell the job to stop: a preempted job gets its whole window, any other its grace period."""
    if stop.reason is Reason.RUN_ENDED:
        # Another member may be preempted: this one gets the same signal, for the same checkpoint.
        parts.grace_ends_s = seconds() + float(parts.attempt.grant.spec["grace_s"])
        _signal(parts, handle)
        return
    if stop.reason is not Reason.PREEMPTED:
        Thread(target=handle.stop, name="stop", daemon=True).start()
        return
    if parts.attempt.window is None:
        # A rehearsal: only this job is preempted, not the machine.
        window = opening(parts.services.term_notice_s)
        parts.attempt.request_stop(replace(stop, window=window))
    _signal(parts, handle)


def _signal(parts: Parts, handle: Handle) -> None:
    handle.signal(_preempt_signal(parts), max(0.0, _kill_s(parts) - seconds()))


def _preempt_signal(parts: Parts) -> Signals:
    return Signals[parts.attempt.grant.spec.get("preempt_signal", "SIGTERM")]


def _kill_s(parts: Parts) -> float:
    window = parts.attempt.window
    if window is None:
        return parts.grace_ends_s
    kill_s = window.kill_s(parts.services.upload_reserve_s, parts.checkpoints.took_s)
    return min(kill_s, parts.grace_ends_s)
