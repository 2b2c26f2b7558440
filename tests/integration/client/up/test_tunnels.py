"""`forge ssh` and `forge port`: the user's own ssh and scp, and a job's ports, from anywhere."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import pytest
from forge_client import ssh_config, tunnel
from forge_client.errors import ClientError
from forge_client.sdk.client import Client
from forge_client.up.exec import here
from forge_worker.runners.dial import _by_engine
from support.client.person import Person, entries
from support.services import require
from support.waiting import eventually
from support.workers.http_bed import http_bed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.workers.worker import Bed


# A job that serves its folder, and runs until somebody makes the file `go`.
SERVES = """
import os, threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
server = ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print("ready", server.server_port, flush=True)
while not os.path.exists("go"):
    threading.Event().wait(0.05)
"""
BESIDE = """
from http.server import HTTPServer, SimpleHTTPRequestHandler
server = HTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler)
print(server.server_port, flush=True)
server.serve_forever()
"""
SAYS = 'echo "$FORGE_JOB_ID $(cat)"; echo aside >&2; exit 7'
# More than fits into all buffers on the way.
LARGE = os.urandom(20_000_000)
GET = b"GET /there/large HTTP/1.0\r\n\r\n"


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require(shutil.which("scp"), "OpenSSH's client")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize("kind", ["process", "docker"])
def test_ssh_scp_and_ports_lead_into_a_job(kind: str, tmp_path: Path, database_url: str) -> None:
    with http_bed(tmp_path, database_url, kind=kind) as made:
        worker = made.worker()
        job = made.script(SERVES, owner="ann")
        port = int(made.told(job, "ready")[0])
        url = made.servers[0].url
        ann = Person(made, url, "ann")

        said = ann.run("ssh", str(job), "--", "-T", SAYS, typed=b"typed")
        assert (said.stdout, said.returncode) == (f"{job} typed\n".encode(), 7), said.stderr
        assert b"aside\n" in said.stderr
        _copies(ann, job, tmp_path)

        with (
            Client(url=url, api_key=ann.env["FORGE_API_KEY"]) as client,
            _listening(ann, made, job) as beside,
        ):
            running = client.job(job)
            foreign = urlsplit(url).port or 0
            others = {tunnel.free_port(): beside, tunnel.free_port(): foreign}
            led = tunnel.forwarded(client.backend, job, others)
            with running.port(port) as place, led as process:
                _serves_beside_a_slow_reader(place)
                _serves_only_the_first(*others)
                assert [tunnel.listens(port) for port in others] == [True, False]
                if kind == "docker":
                    _is_reached_by_the_engine(running.status().worker or "", job, port)
                assert ann(str(job), "--", "touch", "go").returncode == 0
                made.succeeds(job)
                assert process.wait(60) != 0
            with pytest.raises(ClientError, match="there is no connection"), running.port(port):
                pass
        told = [detail for _, detail in entries(made, job)]
        ways = [(one["program"], one.get("ports")) for one in told]
        led_to = [("port", [port]), ("port", [beside, foreign])]
        assert ways[:5] == [("ssh", None), ("ssh", None), (made.python, None), *led_to]
        assert len(made.jobs.attempts(job)) == 1
        assert "Traceback" not in worker.output


def test_the_config_of_ssh_names_running_jobs_also_after_a_preemption(
    tmp_path: Path, database_url: str
) -> None:
    home, kept = tmp_path / "home", tmp_path / "dotfiles"
    (home / ".ssh").mkdir(parents=True)
    kept.write_text("Host box\n  Port 2222\n")
    kept.chmod(0o600)
    config = home / ".ssh" / "config"
    config.symlink_to(kept)
    with http_bed(tmp_path, database_url, kind="process") as made:
        made.worker()
        job = made.script(SERVES, owner="ann", name="train-a")
        made.told(job, "ready")
        ann = Person(made, made.servers[0].url, "ann")
        ann.env["HOME"] = str(home)
        for _ in range(2):
            done = ann.run("ssh", "--config")
            assert done.returncode == 0, done.stderr
            assert b"now: train-a.forge" in done.stderr
        assert config.is_symlink()
        assert kept.read_text() == f'Include "{ssh_config.place()}"\n\nHost box\n  Port 2222\n'
        folder = _says(ann, "ssh", "-F", str(config), "train-a.forge", "pwd")
        link = ann.run("code-url", str(job)).stdout.decode().strip()
        assert link == f"vscode://vscode-remote/ssh-remote+job-{job}{folder}"

        assert ann.run("preempt", str(job)).returncode == 0
        eventually(lambda: made.jobs.job(job)["attempt"] == 2 and "ready" in made.log(job).decode())
        eventually(lambda: ann(str(job), "--", "true").returncode == 0)
        again = _says(ann, "ssh", "-F", str(config), "train-a.forge", "pwd")
        assert again != folder
        assert ann(str(job), "--", "touch", "go").returncode == 0
        made.succeeds(job)


def _says(ann: Person, *words: str) -> str:
    done = subprocess.run(words, env=ann.env, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().strip()


def _copies(ann: Person, job: int, folder: Path) -> None:
    """Check that scp takes a folder there and a file back, over one connection."""
    config, here = folder / "config", folder / "here"
    shared = f"  ControlMaster auto\n  ControlPath {folder}/shared\n  ControlPersist yes\n"
    config.write_bytes(ann.run("ssh", "--print-config").stdout + shared.encode())
    here.mkdir()
    (here / "large").write_bytes(LARGE)
    (here / "large").chmod(0o640)
    (here / "small").write_bytes(b"small")
    # From OpenSSH 10 on, scp uses a shared connection and begins none.
    _runs(ann, "ssh", "-F", str(config), f"job-{job}", "true")
    try:
        _runs(ann, "scp", "-F", str(config), "-rp", str(here), f"job-{job}:there")
        _runs(ann, "scp", "-F", str(config), "-p", f"job-{job}:there/large", str(folder / "back"))
    finally:
        _runs(ann, "ssh", "-F", str(config), "-O", "exit", f"job-{job}")
    assert (folder / "back").read_bytes() == LARGE
    assert (folder / "back").stat().st_mode & 0o777 == 0o640


def _runs(ann: Person, *words: str) -> None:
    ran = subprocess.run(words, env=ann.env, capture_output=True, timeout=120, check=False)
    assert ran.returncode == 0, (words, ran.stderr)


def _serves_beside_a_slow_reader(place: str) -> None:
    at = (tunnel.LOOPBACK, urlsplit(place).port or 0)
    with socket.create_connection(at) as slow:
        slow.sendall(GET)
        assert slow.recv(9) == b"HTTP/1.0 "
        with httpx.Client(base_url=place, trust_env=False) as web:
            assert web.get("/there/small").content == b"small"
            assert web.get("/there/large").content == LARGE


@contextmanager
def _listening(ann: Person, made: Bed, job: int) -> Iterator[int]:
    """Start a server beside the job's program, as its owner would start TensorBoard."""
    with ann.started(str(job), "--", made.python, "-c", BESIDE) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())


def _serves_only_the_first(beside: int, foreign: int) -> None:
    with httpx.Client(trust_env=False) as web:
        assert web.get(f"http://{tunnel.LOOPBACK}:{beside}/there/small").content == b"small"
        with pytest.raises(httpx.TransportError):
            web.get(f"http://{tunnel.LOOPBACK}:{foreign}/")


def _is_reached_by_the_engine(worker: str, job: int, port: int) -> None:
    """Check the way of a worker that is not root."""
    entry = here(worker, job, 1)
    with _by_engine(entry, port) as there:  # type: ignore[arg-type]  # it is a container
        there.sendall(GET.replace(b"large", b"small"))
        assert there.makefile("rb").read().endswith(b"\r\n\r\nsmall")
