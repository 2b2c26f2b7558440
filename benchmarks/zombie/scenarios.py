"""What is done to each queue: a zombie that reports, one that goes on, a job that kills workers."""

import time
from dataclasses import dataclass

from benchmarks.zombie.stage import Stage
from benchmarks.zombie.worker import Worker

# Seconds in which a zombie may come to know that it is one.
KNOW_S = 20.0
# Seconds after which a job that no worker takes is not taken any more.
AGAIN_S = 45.0
MOST_RUNS = 12


@dataclass(frozen=True)
class Reported:
    """A zombie's job had ended by the time that it woke, and it reported."""

    given_s: float
    zombie_ended: bool
    state_then: str
    other_ran_on: bool
    state_last: str
    said: list[str]
    other_said: list[str]
    workers_alive: tuple[bool, bool]
    by_hand: str


@dataclass(frozen=True)
class WentOn:
    """A zombie's job had not ended when it woke; the other worker ended first."""

    stopped_s: float | None
    state_then: str
    other_ended: bool
    state_other: str
    state_last: str
    runs: int
    said: list[str]


@dataclass(frozen=True)
class Poison:
    """A job whose worker was killed at each of its runs."""

    runs: int
    state: str


def reported(stage: Stage) -> Reported:
    """Have the zombie's job end in the moment in which it wakes."""
    zombie, other, given_s = handed_over(stage)
    stage.let_end(1)
    zombie.wake()
    stage.over(1, KNOW_S)
    state_then, ran_on = stage.state(), stage.runs(2)
    by_hand = stage.call("report") if stage.contender.is_forge else ""
    stage.let_end(2)
    stage.over(2, KNOW_S)
    return Reported(
        given_s=given_s,
        zombie_ended=bool(stage.notes(1, "ended")),
        state_then=state_then,
        other_ran_on=ran_on,
        state_last=stage.state(),
        said=zombie.said_since(),
        other_said=other.said_since(),
        workers_alive=(zombie.alive, other.alive),
        by_hand=by_hand,
    )


def went_on(stage: Stage) -> WentOn:
    """Have the zombie's job go on, and the other worker end first."""
    zombie, _, _ = handed_over(stage)
    zombie.wake()
    stopped_s = stage.over(1, KNOW_S)
    state_then = stage.state()
    stage.let_end(2)
    stage.over(2, KNOW_S)
    state_other = stage.state()
    stage.let_end(1)
    stage.over(1, KNOW_S)
    return WentOn(
        stopped_s=stopped_s,
        state_then=state_then,
        other_ended=bool(stage.notes(2, "ended")),
        state_other=state_other,
        state_last=stage.state(),
        runs=sum(bool(stage.notes(run, "began")) for run in range(1, MOST_RUNS)),
        said=zombie.said_since(),
    )


def poison(stage: Stage) -> Poison:
    """Kill the worker, and all below it, each time that it has begun the job."""
    for run in range(1, MOST_RUNS + 1):
        worker = stage.worker()
        try:
            stage.began(run, AGAIN_S)
        except AssertionError:
            return Poison(run - 1, stage.state())
        finally:
            worker.kill()
    return Poison(MOST_RUNS, stage.state())


def handed_over(stage: Stage) -> tuple[Worker, Worker, float]:
    """Pause a worker under its job until another has it; tell how long that took."""
    zombie = stage.worker()
    stage.began(1)
    other = stage.worker()
    # It is up, and has looked, before the first falls silent.
    time.sleep(AGAIN_S / 9)
    paused = time.time()
    zombie.pause()
    began = stage.began(2)
    assert other.has(began["pid"]), f"{stage.contender.name}: another worker was to have run 2"
    return zombie, other, began["at"] - paused
