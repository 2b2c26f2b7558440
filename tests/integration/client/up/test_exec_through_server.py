"""`forge exec` through a server: the worker connects to it, and no port is open on the worker."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from forge_functions.auth import short_token
from forge_functions.routes import shells
from forge_functions.streams import relay
from forge_schema.access.api_keys import Sessions
from forge_schema.http_client import tls_context
from forge_schema.model.states import Phase, Role
from forge_schema.shell import CALLER_PATH, LEASE, WORKER_PATH, ShellNews, ShellTicket, connect
from support.client.command import FORGE
from support.client.entering import WAITS, enter_in_a_terminal
from support.client.person import Person, entries
from support.http.api import bearer, problem
from support.http.certificates import certificates
from support.workers.http_bed import http_bed
from support.workers.worker import bed
from websockets.exceptions import ConnectionClosed, InvalidStatus

if TYPE_CHECKING:
    from pathlib import Path

    from forge_schema.model.lease import Grant
    from support.http.api import Api, Caller
    from support.waiting import Eventually
    from support.workers.worker import Bed

LOOKS = 'echo "$(id -u) $(pwd) $MINE $FORGE_JOB_ID $(cat)"; echo aside >&2; exit 7'
LASTING = "exec sleep 86399"
LARGE = 3_000_000


def alive(words: str) -> bool:
    """Tell whether a process with this command line lives, in a container or not."""
    found = subprocess.run(["pgrep", "-fx", words], capture_output=True, check=False)
    return found.returncode == 0


@pytest.mark.parametrize("kind", ["process", "docker"])
def test_job_is_entered_from_anywhere(
    kind: str, tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    with http_bed(tmp_path, database_url, kind=kind) as made:
        made.worker()
        job = made.script(WAITS, env={"MINE": "my own"}, owner="ann")
        uid, folder = made.told(job, "ready")
        url = made.servers[0].url
        ann, bob = Person(made, url, "ann"), Person(made, url, "bob")

        looked = ann(str(job), "--", "sh", "-c", LOOKS, typed=b"typed")
        assert looked.stdout.decode() == f"{uid} {folder} my own {job} typed\n", looked.stderr
        assert (looked.returncode, looked.stderr) == (7, b"aside\n")
        assert ann(str(job), "--", "no-such-program").returncode in {126, 127}
        detail = {"program": "no-such-program", "command": "no-such-program", "rank": 0}
        assert entries(made, job)[1] == ("key", {**detail, "through": "server"})

        sent = os.urandom(LARGE)
        digest = hashlib.sha256(sent).hexdigest().encode()
        assert ann(str(job), "--", "sha256sum", typed=sent).stdout.startswith(digest)
        assert ann(str(job), "--", "cat", typed=sent).stdout == sent

        assert bob(str(job), "--", "ls").returncode == 3
        viewer = Person(made, url, "ann", Role.VIEWER)
        assert viewer(str(job), "--", "ls").returncode == 7
        assert len(entries(made, job)) == 4

        enter_in_a_terminal([str(FORGE), "exec", str(job)], ann.env)
        _left(ann, job, eventually)
        assert Person(made, url, "root", Role.ADMIN)(str(job), "--", "touch", "go").returncode == 0
        made.succeeds(job)
        late = ann(str(job), "--", "ls")
        assert (late.returncode, b"is not running: it has succeeded" in late.stderr) == (4, True)


def _left(ann: Person, job: int, eventually: Eventually) -> None:
    """Check that a command whose caller is gone ends, in a container too."""
    with ann.started(str(job), "--", "sh", "-c", LASTING):
        eventually(lambda: alive("sleep 86399"))
    eventually(lambda: not alive("sleep 86399"))


def test_command_ends_with_the_job(
    tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    with http_bed(tmp_path, database_url) as made:
        made.worker()
        job = made.script(WAITS, owner="ann", max_failures=0)
        made.says(job, "ready")
        with Person(made, made.servers[0].url, "ann").started(
            str(job), "--", "sh", "-c", "echo in; exec sleep 86397"
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"in\n"
            made.queue.cancel(job)
            assert process.wait(60) == 128 + signal.SIGKILL
        eventually(lambda: not alive("sleep 86397"))


def test_worker_finds_the_callers_server_among_several(tmp_path: Path, database_url: str) -> None:
    files = certificates(tmp_path)
    tls: dict[str, Any] = {"tls_cert": files.server, "tls_key": files.key}
    with http_bed(tmp_path, database_url, servers=2, **tls) as made:
        made.worker(tls_ca=files.authority)
        job = made.script(WAITS, owner="ann")
        made.says(job, "ready")
        for server in made.servers:
            ann = Person(made, server.url, "ann")
            ann.env["FORGE_TLS_CA"] = str(files.authority)
            assert ann(str(job), "--", "echo", "here").stdout == b"here\n"
        assert ann(str(job), "--", "touch", "go").returncode == 0
        made.succeeds(job)


def test_worker_that_allows_no_commands_says_so(tmp_path: Path, database_url: str) -> None:
    with http_bed(tmp_path, database_url) as made:
        worker = made.worker(allow_exec="false")
        job = made.script(WAITS, owner="ann")
        made.says(job, "ready")
        refused = Person(made, made.servers[0].url, "ann")(str(job), "--", "ls")
        assert (refused.returncode, refused.stdout) == (1, b"")
        assert b"this worker allows no commands inside its jobs" in refused.stderr
        let_go(made)
        made.succeeds(job)
        assert "Traceback" not in worker.output


def let_go(made: Bed) -> None:
    for folder in made.root.glob("one/jobs/*/work"):
        (folder / "go").touch()


def test_worker_with_direct_access_comes_to_the_server_in_its_settings(
    tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    (tmp_path / "servers").mkdir()
    with (
        http_bed(tmp_path / "servers", database_url) as servers,
        bed("process", tmp_path, database_url) as made,
    ):
        (server,) = servers.servers
        worker = made.worker()
        job = made.script(WAITS, owner="ann")
        made.says(job, "ready")
        ann = Person(made, server.url, "ann")
        with ann.started(str(job)):
            eventually(lambda: "give --exec-url" in worker.output)
        let_go(made)
        made.succeeds(job)
        worker.leave()
        made.worker(exec_url=server.url)
        job = made.script(WAITS, owner="ann")
        made.says(job, "ready")
        assert ann(str(job), "--", "echo", "here").stdout == b"here\n"
        assert ann(str(job), "--", "touch", "go").returncode == 0
        made.succeeds(job)


class Door:
    """A server with a job that runs on a worker of the test's, and its owner."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.ann: Caller = api.key("ann")
        self.worker = api.rig.worker("one")
        self.job = api.rig.submit(owner="ann")
        self.grant: Grant = self.worker.claim_one()
        self.tls = tls_context()

    @property
    def lease(self) -> dict[str, str]:
        fence = self.grant.fence
        return {LEASE: f"{fence.job_id}:{fence.token}:{fence.nonce}"}

    def logs_in(self) -> str:
        """Let ann use single sign-on and `forge login`; return the session's id."""
        begun = Sessions(self.api.services.database).begin(
            "oidc:ann",
            "ann",
            Role.SUBMITTER,
            name="forge login",
            address="",
            lasts=timedelta(hours=1),
        )
        assert begun is not None
        token = short_token.mint(self.api.services, begun, begun["expires_at"])
        self.ann = self.api.caller(bearer(token))
        return str(begun["id"])

    def runs(self) -> Door:
        self.api.rig.queue.report(self.grant.fence, Phase.RUNNING)
        return self

    def ticket(self, *command: str) -> ShellTicket:
        body = {"command": [*command]}
        return ShellTicket.model_validate(
            self.ann.post(f"/api/v1/queue/jobs/{self.job}/shells", body)
        )

    def answer(self, ticket: str, order: str) -> ShellNews:
        """Show a ticket and send an order; return what is said."""
        headers = {"Authorization": f"Bearer {ticket}"}
        with connect(self.api.url, CALLER_PATH, headers, self.tls) as caller:
            caller.send(order)
            return ShellNews.model_validate_json(caller.recv(60))


@pytest.fixture
def door(api: Api) -> Door:
    return Door(api)


def test_job_is_entered_only_while_its_program_runs(door: Door) -> None:
    body, path = {"command": ["ls"]}, f"/api/v1/queue/jobs/{door.job}/shells"
    said = problem(door.ann.call("POST", path, body), 409, "not_running_job")
    assert said.startswith(f"rank 0 of job {door.job} is claimed on worker one")
    door.runs()
    said = problem(door.ann.call("POST", path, {**body, "rank": 1}), 409, "not_running_job")
    assert "rank 1" in said
    problem(door.ann.call("POST", path, {"command": []}), 422, "invalid")
    problem(door.ann.call("POST", path, {"command": ["x" * 20_000]}), 422, "invalid")
    assert [
        event for event in door.api.rig.jobs.events(door.job) if event["action"] == "entered"
    ] == []


def test_ticket_is_for_one_order_once_and_no_other(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "CALL_S", 0.1)
    monkeypatch.setattr(relay, "CALL_EVERY_S", 0.05)
    door.runs()
    ticket = door.ticket("ls")
    other = ticket.order.replace("ls", "rm")
    assert door.answer(ticket.ticket, other).code == "ticket_invalid"
    assert door.answer(ticket.ticket, ticket.order).code == "worker_silent"
    assert door.answer(ticket.ticket, ticket.order).code == "ticket_invalid"
    for wrong in (ticket.ticket[:-3] + "abc", door.ann.headers["Authorization"][7:], ""):
        with pytest.raises(InvalidStatus, match="403"):
            door.answer(wrong, ticket.order)
    monkeypatch.setattr(shells, "LASTS_S", -5)
    with pytest.raises(InvalidStatus, match="403"):
        door.answer(door.ticket("ls").ticket, ticket.order)


def test_shells_of_an_owner_are_counted(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "MOST_OF_OWNER", 0)
    ticket = door.runs().ticket("ls")
    assert door.answer(ticket.ticket, ticket.order).code == "too_many_shells"


def test_only_the_worker_that_holds_the_lease_comes(door: Door, eventually: Eventually) -> None:
    ticket = door.runs().ticket("ls")
    shells = door.api.services.relay._open
    headers = {"Authorization": f"Bearer {ticket.ticket}"}
    with connect(door.api.url, CALLER_PATH, headers, door.tls) as caller:
        caller.send(ticket.order)
        shell = eventually(lambda: next(iter(shells), None))
        fence = door.grant.fence
        wrong = [
            (f"{door.job}-0", door.lease),
            (shell, {}),
            (shell, {LEASE: "1:2"}),
            (shell, {LEASE: f"{fence.job_id}:{fence.token}:{door.worker.machine.boot_id}"}),
            (shell, {LEASE: f"{fence.job_id + 1}:{fence.token}:{fence.nonce}"}),
        ]
        for name, lease in wrong:
            with pytest.raises(InvalidStatus, match="403"):
                connect(door.api.url, f"{WORKER_PATH}/{name}", lease, door.tls)
        with connect(door.api.url, f"{WORKER_PATH}/{shell}", door.lease, door.tls) as worker:
            assert worker.recv(60) == ticket.order
            # One is enough.
            with pytest.raises(InvalidStatus, match="403"):
                connect(door.api.url, f"{WORKER_PATH}/{shell}", door.lease, door.tls)
            caller.send(b"\0typed")
            assert worker.recv(60) == b"\0typed"
            worker.send(ShellNews(exit_code=3).text)
        assert ShellNews.model_validate_json(caller.recv(60)).exit_code == 3
    eventually(lambda: not shells)


def test_shell_that_says_nothing_for_long_is_closed(
    door: Door, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(relay, "IDLE_S", 0.2)
    ticket = door.runs().ticket("ls")
    shells = door.api.services.relay._open
    headers = {"Authorization": f"Bearer {ticket.ticket}"}
    with connect(door.api.url, CALLER_PATH, headers, door.tls) as caller:
        caller.send(ticket.order)
        shell = eventually(lambda: next(iter(shells), None))
        with connect(door.api.url, f"{WORKER_PATH}/{shell}", door.lease, door.tls):
            assert ShellNews.model_validate_json(caller.recv(60)).code == "shell_over"


@pytest.mark.parametrize("end", ["key", "login", "attempt"])
def test_shell_ends_with_the_right_to_it(
    end: str, door: Door, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(relay, "LOOK_EVERY_S", 0.05)
    session = door.logs_in() if end == "login" else ""
    ticket = door.runs().ticket("ls")
    shells = door.api.services.relay._open
    headers = {"Authorization": f"Bearer {ticket.ticket}"}
    with connect(door.api.url, CALLER_PATH, headers, door.tls) as caller:
        caller.send(ticket.order)
        shell = eventually(lambda: next(iter(shells), None))
        with connect(door.api.url, f"{WORKER_PATH}/{shell}", door.lease, door.tls) as worker:
            assert worker.recv(60) == ticket.order
            if end != "attempt":
                door.api.keys.revoke(session or door.ann.key_id)
            else:
                door.api.rig.finish(door.grant)
            assert ShellNews.model_validate_json(caller.recv(60)).code == "shell_withdrawn"
            with pytest.raises(ConnectionClosed):
                worker.recv(60)


def test_ssh_and_ports_need_the_same_right_as_a_command(door: Door) -> None:
    path = f"/api/v1/queue/jobs/{door.runs().job}/shells"
    viewer, bob = door.api.key("ann", Role.VIEWER), door.api.key("bob")
    taken: list[dict[str, object]] = [{"ssh": True}, {"ports": [8888]}]
    for body in taken:
        problem(viewer.call("POST", path, body), 403, "forbidden")
        problem(bob.call("POST", path, body), 404, "job_unknown")
        assert ShellTicket.model_validate(door.ann.post(path, body)).worker == "one"
    refused: list[dict[str, object]] = [
        {"ports": [80]},
        {"ports": [8888], "ssh": True},
        {"ports": ["10.0.0.1:8888"]},
    ]
    for body in refused:
        problem(door.ann.call("POST", path, body), 422, "invalid")
    told = [e["detail"] for e in door.api.rig.jobs.events(door.job) if e["action"] == "entered"]
    assert [(one["program"], one.get("ports")) for one in told] == [("ssh", None), ("port", [8888])]
