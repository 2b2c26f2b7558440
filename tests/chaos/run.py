"""One run: start everything, inject faults, heal, wait until all is at rest, then check."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from chaos.bed import Bed, bed, fleet_of
from chaos.check.invariants import violations
from chaos.check.story import story
from chaos.clients.client import Clients
from chaos.faults import faults
from chaos.figures import Figures, sum_of
from chaos.parts.fleet import LEAVE_S
from chaos.schedule import schedule
from chaos.striker import Striker
from forge_schema.database.pool import Database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from chaos.options import Options
    from chaos.parts.member import Member

PROGRESS_S = 60.0
# A cancelled job ends within a renewal and its grace.
CANCELLED_S = 60.0
# Two runs on one machine would choose the same free ports.
STARTING = threading.Lock()


@dataclass
class Outcome:
    """The outcome of a run; `stories` describe each violation."""

    figures: Figures
    stories: list[str]


def run(options: Options) -> Outcome:
    """Execute a run.

    Raises:
        AssertionError: the bed itself did not start.
    """
    figures = Figures(options.seed, options.minutes, options.workers)
    with ExitStack() as stack:
        with STARTING:
            made = stack.enter_context(bed(options))
        clients = stack.enter_context(_clients(made))
        fleet = fleet_of(made)
        try:
            fleet.start()
            _strike(made, clients, figures)
            _come_to_rest(made, clients, figures)
            clients.end()
            fleet.end()
            _leave(made, figures)
            figures.crashes = sum_of(fleet.crashes)
            figures.restarts, figures.failovers = fleet.restarts, made.pair.failovers
            return _judged(made, figures)
        finally:
            fleet.end()


@contextmanager
def _clients(made: Bed) -> Iterator[Clients]:
    with Database(made.through("db-client"), size=8) as database:
        clients = Clients(
            made.options,
            made.history,
            database,
            bundle=made.project(),
            containers=bool(made.engines),
            data=made.inputs.bucket,
            over_http=made.over_http(),
        )
        clients.adopt(made.early)
        try:
            yield clients
        finally:
            clients.end()


def _strike(made: Bed, clients: Clients, figures: Figures) -> None:
    options = made.options
    known = {n: f for n, f in faults(made).items() if not options.only or n in options.only}
    seconds = options.minutes * 60
    kinds = [fault.kind() for fault in known.values()]
    blows = schedule(options.seed, seconds, options.gap_s, kinds)
    absent = [kind.name for kind in kinds if not kind.targets]
    _say(f"seed {options.seed}: {len(blows)} faults planned; not here: {absent or 'none'}")
    if options.old and made.old is None:
        _say("git's history has no release before this version: no older worker runs")
    striker = Striker(known, made.history)
    clients.start()
    with _progress(lambda: _line(clients, striker)):
        striker.carry_out(blows, seconds)
    figures.faults = striker.struck.total()
    figures.struck, figures.missed = sum_of(striker.struck), sum_of(striker.missed)
    figures.answers_lost = sum_of(*(door.lost for door in made.doors.all))
    figures.troubles += [f"refused: {what}" for what in clients.refused]
    figures.troubles += [f"not healed: {what}" for what in striker.unhealed]
    for door in made.doors.all:
        door.heal()


def _come_to_rest(made: Bed, clients: Clients, figures: Figures) -> None:
    """Wait for every acknowledged job to end; cancel those that take too long."""
    clients.stop_submitting()
    made.history.note("healed", fault="all", target="all")
    _say(f"all is healed; {len(clients.open_jobs)} jobs are left")
    if not _until(lambda: clients.settled, made.options.drain_s):
        figures.cancelled_at_the_end = clients.cancel_open()
        if not _until(lambda: clients.settled, CANCELLED_S):
            figures.troubles.append(f"jobs that never ended: {sorted(clients.open_jobs)}")


def _leave(made: Bed, figures: Figures) -> None:
    """Stop the workers gracefully, then everything else.

    A worker that is still waiting for its next start is cleaned up as its operator would do it.
    """
    absent = [one for one in made.workers if not (one.running and one.says("ready"))]
    figures.troubles += _gone(made.workers)
    for one in absent:
        if (code := one.recover()) != 0:
            figures.troubles.append(f"{one.name} was not recovered: {code}")
    figures.troubles += _gone([*made.sweepers, *made.servers])
    if made.proxy is not None:
        figures.troubles += _gone([made.proxy])


def _gone(members: Sequence[Member]) -> list[str]:
    """Stop processes, and report those that did not exit cleanly."""
    for member in members:
        member.leave_alone()
        member.send(signal.SIGTERM)
    troubles = []
    for member in members:
        # Before it handles signals, it exits as any process does.
        if (code := member.ended(LEAVE_S)) not in {0, -signal.SIGTERM}:
            troubles.append(f"{member.name} left with {code}")
            member.kill()
    return troubles


def _judged(made: Bed, figures: Figures) -> Outcome:
    found = violations(made.url, made.store.url, made.history.path)
    figures.read(made.url)
    figures.violations = len(found)
    return Outcome(figures, [story(one, made.url, made.history.path) for one in found])


def _line(clients: Clients, striker: Striker) -> str:
    states = ", ".join(f"{state} {count}" for state, count in clients.states.most_common())
    open_jobs = len(clients.open_jobs)
    return f"{clients.submitted} jobs, {open_jobs} open; {states}; {striker.struck.total()} faults"


@contextmanager
def _progress(line: Callable[[], str]) -> Iterator[None]:
    """Print a line each minute while the block runs."""
    ending = threading.Event()
    began = monotonic()

    def tell() -> None:
        while not ending.wait(PROGRESS_S):
            _say(f"{(monotonic() - began) / 60:.0f} min: {line()}")

    thread = threading.Thread(target=tell, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def _until(so: Callable[[], bool], seconds: float) -> bool:
    deadline = monotonic() + seconds
    pause = threading.Event()
    while not so() and monotonic() < deadline:
        pause.wait(0.2)
    return so()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
