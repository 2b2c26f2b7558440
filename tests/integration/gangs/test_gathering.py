"""The members of a run find each other through the queue, on real sockets of this machine."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.model.states import Phase, Reason
from forge_schema.model.worker import Speed
from forge_worker.attempt import Stopped
from forge_worker.gang import gathering, preflight
from forge_worker.gang.address import GangPolicy, listening
from forge_worker.gang.gathering import GangIncomplete, Gatherer
from forge_worker.gang.members import Gang, pace_of
from forge_worker.gang.preflight import PreflightFailed
from forge_worker.machine.slots import MachineSlot
from forge_worker.queue.gateway import SqlGateway
from support.gangs.runs import Run, running
from support.waiting import eventually
from support.workers.attempts import attempt_of, some_grant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from forge_schema.model.lease import Gathering
    from forge_worker.attempt import LiveAttempt
    from forge_worker.gang.address import Network
    from pydantic import JsonValue
    from support.queue.rig import Rig

SLOT = MachineSlot(2.0, 1024, 100, ("GPU-a", "GPU-b"), 24_000, "nvidia")


@dataclass
class Party:
    """The members of one run on this machine; those who are not `met` never come."""

    run: Run
    root: Path
    patience_s: float = 60.0
    # Where some ranks say that they are; the others are on this machine.
    elsewhere: dict[int, str] = field(default_factory=dict)
    network: Network = "host"

    def __post_init__(self) -> None:
        nodes = len(self.run.fences)
        self.attempts: list[LiveAttempt] = []
        self.left: list[Gatherer] = []
        for rank, fence in enumerate(self.run.fences):
            grant = replace(some_grant(fence.job_id, fence.token), nonce=fence.nonce)
            grant = replace(grant, rank=rank, nodes=nodes)
            self.attempts.append(attempt_of(grant, self.root / str(rank)))

    def member(self, rank: int) -> Gatherer:
        gateway = SqlGateway(self.run.rig.database, name="any", ttl=timedelta(seconds=60))
        # Other gangs of this machine must see its port as taken, so the locks are the usual ones.
        address = self.elsewhere.get(rank, "127.0.0.1")
        policy = GangPolicy(self.network, advertised=address, patience_s=self.patience_s)
        pace = pace_of(Speed("torch", cuda={"fp32": 100.0 * (rank + 1)}), "cuda", SLOT.cpus)
        return Gatherer(self.attempts[rank], gateway, SLOT, policy, _once, pace=pace)

    def met(self, *ranks: int) -> list[Gang | BaseException]:
        """Have some members gather at once; return what came of each."""
        members = [self.member(rank) for rank in ranks]
        self.left += members
        with ThreadPoolExecutor(len(members)) as threads:
            return list(threads.map(_outcome, members))

    def leave(self) -> None:
        for one in self.left:
            one.free()


def _once(step: Callable[[], Gathering]) -> Gathering:
    return step()


def _outcome(member: Gatherer) -> Gang | BaseException:
    try:
        return member.gather()
    except Exception as error:  # noqa: BLE001  the test looks at it
        return error


@pytest.fixture
def gathered(rig: Rig, tmp_path: Path) -> Iterator[Callable[..., Party]]:
    """Form a run of some members, who give up their ports after the test."""
    with ExitStack() as leaving:

        def make(nodes: int = 3, **changes: Any) -> Party:  # noqa: ANN401  fields of Party
            party = Party(running(rig, nodes), tmp_path, **changes)
            leaving.callback(party.leave)
            return party

        yield make


def test_all_members_learn_of_the_same_gang(gathered: Callable[..., Party]) -> None:
    party = gathered()
    gangs = [one for one in party.met(0, 1, 2) if isinstance(one, Gang)]
    assert [gang.rank for gang in gangs] == [0, 1, 2]
    assert all(gang.peers == gangs[0].peers for gang in gangs)
    assert [peer.worker for peer in gangs[0].peers] == ["gpu-0", "gpu-1", "gpu-2"]
    assert gangs[0].backend == "nccl"
    assert [(peer.speed, peer.method) for peer in gangs[0].peers] == [
        (100.0, "torch"),
        (200.0, "torch"),
        (300.0, "torch"),
    ]
    # The program of rank 0 can listen there at once.
    socket.create_server(("127.0.0.1", gangs[0].master_port)).close()


def test_a_member_that_does_not_come_is_named(gathered: Callable[..., Party]) -> None:
    party = gathered(patience_s=0.3)
    for error in party.met(0, 1):
        assert isinstance(error, GangIncomplete)
        assert str(error.message).endswith("rank 2 on gpu-2 has not fetched its lease")


def test_the_jobs_log_names_whom_the_others_wait_for(
    gathered: Callable[..., Party], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "NOTE_S", 0.0)
    monkeypatch.setattr(gathering, "NOTES_S", 0.0)
    party = gathered()
    run, log = party.run, party.attempts[0].folders.log
    log.parent.mkdir(parents=True, exist_ok=True)
    told: dict[str, JsonValue] = {"address": "127.0.0.1"}
    with ThreadPoolExecutor(1) as thread:
        waits = thread.submit(party.met, 0)
        begin = "forge: waiting for the other machines: rank 1 on gpu-1 "
        first = f"{begin}has not fetched its lease, rank 2 on gpu-2 has not fetched its lease"
        eventually(lambda: log.exists() and first in log.read_text())
        run.rig.queue.report(run.fences[1], Phase.PREPARING)
        run.rig.queue.report(run.fences[2], Phase.PREPARING)
        run.rig.queue.gather(run.fences[2], 1, told)
        eventually(lambda: f"{begin}has not prepared yet\n" in log.read_text())
        run.rig.queue.cancel(run.job_id)
        assert isinstance(waits.result()[0], Stopped)
    lines = log.read_text().splitlines()
    assert len(lines) == len({*lines})


def test_nobody_starts_once_a_member_has_ended(gathered: Callable[..., Party]) -> None:
    party = gathered()
    run = party.run
    run.end(2, Reason.START_FAILED)
    assert all(isinstance(one, Stopped) for one in party.met(0, 1))
    stops = [attempt.stop for attempt in party.attempts[:2]]
    assert [stop and stop.reason for stop in stops] == [Reason.RUN_ENDED] * 2


def test_a_member_that_waits_stops_at_once_when_it_must(gathered: Callable[..., Party]) -> None:
    party = gathered(2)
    run = party.run
    with ThreadPoolExecutor(1) as thread:
        waits = thread.submit(party.met, 0)
        steps = "SELECT rank FROM lease WHERE job_id = %s AND step = 1"
        eventually(lambda: run.rig.rows(steps, run.job_id))
        run.rig.queue.cancel(run.job_id)
        assert isinstance(waits.result()[0], Stopped)
    stop = party.attempts[0].stop
    assert stop is not None
    assert stop.reason is Reason.CANCELLED


def test_a_member_whose_lease_is_lost_gives_up(gathered: Callable[..., Party]) -> None:
    party = gathered(2)
    run = party.run
    run.rig.rows("DELETE FROM lease WHERE job_id = %s", run.job_id)
    assert isinstance(party.met(1)[0], Stopped)
    assert party.attempts[1].lost


# To this address, no machine has a route.
NOWHERE = "240.0.0.1"


@pytest.mark.parametrize(("lost", "blamed"), [(0, [0]), (2, [2])])
def test_the_member_that_others_cannot_reach_is_the_one_that_failed(
    gathered: Callable[..., Party], lost: int, blamed: list[int]
) -> None:
    party = gathered(elsewhere={lost: NOWHERE})
    run = party.run
    # Those that pass wait for the others, until one of these ends.
    with ThreadPoolExecutor(3) as threads:
        waiting = [threads.submit(party.met, rank) for rank in range(3)]
        failing = [0] if lost else [1, 2]
        for rank, (error,) in [(rank, waiting[rank].result()) for rank in failing]:
            assert isinstance(error, PreflightFailed)
            assert NOWHERE in error.message
            run.end(rank, Reason.PREFLIGHT_FAILED, detail=error.message)
        for rank in {0, 1, 2} - {*failing}:
            assert isinstance(waiting[rank].result()[0], Stopped)
            run.end(rank, Reason.RUN_ENDED)
    reasons = run.reasons()
    assert [rank for rank in range(3) if reasons[rank] == "preflight_failed"] == blamed


def test_a_member_that_cannot_reach_another_waits_for_the_others_checks(
    gathered: Callable[..., Party],
) -> None:
    party = gathered(2, elsewhere={1: NOWHERE})
    run = party.run
    told: dict[str, JsonValue] = {
        "address": "127.0.0.1",
        "port": 1,
        "program_port": 2,
        "nonce": "0" * 32,
    }
    with ThreadPoolExecutor(1) as thread:
        run.rig.queue.gather(run.fences[1], 1, {**told, "unreached": None})
        master = thread.submit(party.met, 0)
        found = "SELECT FROM lease WHERE rank = 0 AND member -> 'unreached' = '[1]'"
        eventually(lambda: run.rig.rows(found))
        assert not master.done()
        run.rig.queue.gather(run.fences[1], 1, {**told, "unreached": []})
        assert isinstance(master.result()[0], PreflightFailed)


def test_a_port_that_is_published_is_checked_and_then_left_to_the_program(
    gathered: Callable[..., Party], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The members are on this machine's loopback, which containers would not reach.
    monkeypatch.setattr(preflight, "is_for_containers", lambda _: True)
    outcomes = gathered(network="ports").met(0, 1, 2)
    gangs = [one for one in outcomes if isinstance(one, Gang)]
    assert gangs, outcomes
    peers = gangs[0].peers
    assert len({peer.port for peer in peers}) == len(gangs) == 3
    for peer in peers:
        assert peer.port == peer.program_port
        listening(peer.port).close()


def test_a_published_port_answers_until_the_master_has_checked_it(
    gathered: Callable[..., Party], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "is_for_containers", lambda _: True)
    party = gathered(2, network="ports")
    run, nonce = party.run, "0" * 32
    with ThreadPoolExecutor(1) as thread, closing(listening()) as master:
        port = master.getsockname()[1]
        told: dict[str, JsonValue] = {"address": "127.0.0.1", "nonce": nonce}
        told |= {"port": port, "program_port": port, "master_port": port, "unreached": None}
        with closing(preflight.PreflightAnswers(nonce, [master])):
            run.rig.queue.gather(run.fences[0], 1, told)
            member = thread.submit(party.met, 1)
            query = "SELECT step, member FROM lease WHERE rank = 1 AND member -> 'unreached' = '[]'"
            eventually(lambda: run.rig.rows(query))
            (row,) = run.rig.rows(query)
            socket.create_connection(("127.0.0.1", row["member"]["port"])).close()
            assert row["step"] == 1
        run.rig.queue.gather(run.fences[0], 1, {**told, "unreached": []})
        eventually(lambda: run.rig.rows(f"{query} AND step = 2"))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", row["member"]["port"]))
        run.rig.queue.gather(run.fences[0], 2, {**told, "unreached": []})
        assert isinstance(member.result()[0], Gang)
