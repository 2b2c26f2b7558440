"""Gathering: the members of a run wait for each other, check the network, and start together."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING

from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import Gathering, Member
from forge_schema.model.quantities import duration_text

from forge_worker.attempt import LiveAttempt
from forge_worker.clock import seconds
from forge_worker.gang.address import LOOPBACK, GangPolicy, ProgramPort, listening
from forge_worker.gang.members import Gang, Peer, RankPace, peer_of
from forge_worker.gang.preflight import PreflightAnswers, PreflightFailed, check
from forge_worker.machine.slots import MachineSlot
from forge_worker.queue.gateway import Gateway

if TYPE_CHECKING:
    from pydantic import JsonValue

PREPARED, REACHABLE = 1, 2
# The pauses between two looks at the others: the first, and the longest.
LOOK_S, LONGEST_S = 0.2, 2.0
# How long one that cannot reach another waits for the others' checks.
CHECKS_S = 40.0
# After how long the job's log first tells whom it waits for, and how much later that again.
NOTE_S, NOTES_S = 5.0, 30.0
# The most late members that a message names.
NAMED = 5
# Whom a member could not reach, in what it tells the others; None before its check.
UNREACHED = "unreached"


class GangIncomplete(ForgeError):
    """Not all members of the run were there in time."""


class Gatherer:
    """Brings one member together with the others of its run.

    Args:
        attempt: the member.
        gateway: tells the others, through the queue, how far it is.
        slot: what it brings along.
        policy: the operator's settings.
        patiently: retries what fails because the queue does not answer.
        pace: how fast it computes.
    """

    def __init__(
        self,
        attempt: LiveAttempt,
        gateway: Gateway,
        slot: MachineSlot,
        policy: GangPolicy,
        patiently: Callable[[Callable[[], Gathering]], Gathering],
        *,
        pace: RankPace,
    ) -> None:
        self._attempt = attempt
        self._gateway = gateway
        self._slot = slot
        self._policy = policy
        self._patiently = patiently
        self._pace = pace
        self._began_s = seconds()
        self._port: ProgramPort | None = None
        self._shown = ""
        self._note_s = NOTE_S
        self._unreached: list[JsonValue] | None = None

    def gather(self) -> Gang:
        """Wait until all members can reach each other; their ports are free to be used then.

        Raises:
            Stopped: the attempt must stop, or another member has ended.
            GangIncomplete: not all members came in time.
            StartFailed: there is no port for its program.
            PreflightFailed: two of them cannot reach each other.
            MemberUnreadable: one is of a version that this one does not understand.
        """
        self._began_s = seconds()
        port = self._port = ProgramPort(self._policy.lock_dir)
        with ExitStack() as open_until_checked:
            open_until_checked.enter_context(closing(port.held))
            checked = port.held if self._policy.publishes else listening()
            open_until_checked.enter_context(closing(checked))
            own = self._own(port, checked.getsockname()[1])
            sockets = {checked, port.held} if own.rank == 0 else {checked}
            answers = open_until_checked.enter_context(
                closing(PreflightAnswers(own.nonce, sockets))
            )
            gang = self._gang(self._wait(own, PREPARED))
            self._check(gang)
            # Whoever sees all reachable starts, and may connect to the ports of their programs.
            if gang.rank:
                self._leave(port, own, answers)
            self._wait(own, REACHABLE, shown=REACHABLE if gang.rank else PREPARED)
        if gang.rank == 0:
            self._wait(own, REACHABLE)
        return gang

    def alone(self) -> Gang:
        """Return the gang of one whose launcher starts its processes on this machine.

        Raises:
            StartFailed: there is no port for its program.
        """
        port = self._port = ProgramPort(self._policy.lock_dir)
        port.held.close()
        own = replace(self._own(port, port.number), address=LOOPBACK, publishes=False)
        return Gang(0, (own,))

    def free(self) -> None:
        """Give up the lock of its port, once its program has ended."""
        if self._port is not None:
            self._port.free()

    def _leave(self, port: ProgramPort, own: Peer, answers: PreflightAnswers) -> None:
        """Close the program's port, once the master has checked it if it checks this one."""
        if own.publishes:
            self._wait_for_checks(own)
            answers.close()
        port.held.close()

    def _check(self, gang: Gang) -> None:
        """Check the network.

        If that fails, wait for the checks of the others: from all of them together the queue knows
        who cannot be reached.
        """
        try:
            check(gang)
        except PreflightFailed as error:
            self._unreached = [*error.ranks]
            self._wait_for_checks(gang.own)
            raise
        self._unreached = []

    def _own(self, port: ProgramPort, checked: int) -> Peer:
        slot, rank = self._slot, self._attempt.grant.rank
        return Peer(
            rank=rank,
            worker="",
            address=self._policy.address() or LOOPBACK,
            port=checked,
            nonce=token_hex(16),
            master_port=None if rank else port.number,
            gpus=len(slot.gpu_uuids),
            vendor=slot.gpu_vendor if slot.gpu_uuids else "",
            cpus=slot.cpus,
            memory_mb=slot.memory_mb,
            speed=self._pace.speed,
            method=self._pace.method,
            batch=slot.batch_size,
            program_port=port.number,
            publishes=self._policy.publishes,
        )

    def _gang(self, members: list[Member]) -> Gang:
        in_order = sorted(members, key=lambda member: member.rank)
        return Gang(self._attempt.grant.rank, tuple(map(peer_of, in_order)))

    def _wait(self, own: Peer, step: int, *, shown: int | None = None) -> list[Member]:
        """Return all members once all others have come to a step; tell them of this one's.

        It is at the same step, or at `shown`.
        """
        looks = self._looks(own, step if shown is None else shown)
        return next(met.members for met in looks if not self._waits_for(met, step))

    def _wait_for_checks(self, own: Peer) -> None:
        """Wait until all others have checked the network."""
        began_s = seconds()
        for met in self._looks(own, PREPARED):
            others = [
                member for member in met.members if member.rank != own.rank and not member.over
            ]
            checked = all(other.details.get(UNREACHED) is not None for other in others)
            if checked or seconds() - began_s > CHECKS_S:
                return

    def _looks(self, own: Peer, step: int) -> Iterator[Gathering]:
        """Tell the others of this one's step, and look at them, again and again."""
        pause_s = LOOK_S
        while True:
            self._attempt.while_wanted()
            met = self._patiently(partial(self._tell, own, step))
            self._attempt.heed(met.standing)
            self._attempt.while_wanted()
            yield met
            self._attempt.stopping.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_S)

    def _tell(self, own: Peer, step: int) -> Gathering:
        details: dict[str, JsonValue] = {**own.details(), UNREACHED: self._unreached}
        return self._gateway.gather(self._attempt.fence, step, details)

    def _waits_for(self, met: Gathering, step: int) -> bool:
        """Tell whether others have not come to a step yet; note in the job's log who."""
        late = self._late(met, step)
        waited_s = seconds() - self._began_s
        if late and waited_s > self._policy.patience_s:
            raise GangIncomplete(_missing(late, self._policy.patience_s))
        words = _words(late)
        if late and words != self._shown and waited_s > self._note_s:
            self._attempt.note(f"waiting for the other machines: {words}")
            self._shown, self._note_s = words, waited_s + NOTES_S
        return bool(late)

    def _late(self, met: Gathering, step: int) -> list[str]:
        by_rank = {member.rank: member for member in met.members}
        return [
            f"rank {rank} on {by_rank[rank].worker} {by_rank[rank].late}"
            if rank in by_rank
            else f"rank {rank} is gone"
            for rank in range(self._attempt.grant.nodes)
            if rank != self._attempt.grant.rank
            if rank not in by_rank or by_rank[rank].step < step
        ]


def _missing(late: list[str], patience_s: float) -> str:
    return f"the gang did not start: after {duration_text(patience_s)}, {_words(late)}"


def _words(late: list[str]) -> str:
    return ", ".join(late[:NAMED]) + (f" and {len(late) - NAMED} more" * (len(late) > NAMED))
