"""Real workers on a test's own database and store, and queries about them."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forge_client.project.bundle import pack
from forge_schema import zstd
from forge_schema.database.pool import Database, Row
from forge_schema.model.spec import JobSpec, Resources
from forge_schema.model.states import State
from forge_schema.model.stored import in_chunks
from forge_schema.queue.inputs import Uploads
from forge_schema.queue.queue import Queue
from forge_schema.queue.registry import Registry
from forge_schema.read.jobs import Jobs
from forge_schema.storage import Store, keys, open_store
from forge_schema.storage.manifest import chunk_list
from forge_worker.runners.docker.pipe import MARK
from forge_worker.worker_folder import known_id
from support.engine.images import BASE_IMAGE
from support.waiting import eventually
from support.warm.process import started
from support.workers.runners import require_docker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Seconds, all short; the lease outlasts a briefly busy machine.
FAST = {
    "FORGE_HEARTBEAT_S": "0.5",
    "FORGE_LEASE_TTL_S": "8",
    "FORGE_POLL_S": "0.5",
    "FORGE_SWEEP_S": "0.5",
    "FORGE_LOG_FLUSH_S": "0.2",
}
LEAVE_S = 120.0
SMALL = Resources(cpus=0.5, memory_mb=256, disk_mb=500)


@dataclass
class Worker:
    """One agent process; `said` is its own log."""

    name: str
    folder: Path
    said: Path
    process: subprocess.Popen[bytes]

    @property
    def output(self) -> str:
        return self.said.read_text(errors="replace")

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """Kill it as a power cut would."""
        self.process.kill()
        self.process.wait(LEAVE_S)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def freeze(self) -> None:
        """Stop it, and return when the last of its threads stands still.

        On a busy machine, those that run on would still hear of what happens next.
        """
        self.send(signal.SIGSTOP)
        threads = Path(f"/proc/{self.process.pid}/task")
        eventually(lambda: all(map(_stopped, threads.iterdir())))

    def leave(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.send(number)
        return self.process.wait(LEAVE_S)


def _stopped(thread: Path) -> bool:
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:  # it ended meanwhile
        return False


@dataclass
class Bed:
    """A queue, a store, and workers of one kind that share both."""

    kind: str
    root: Path
    database: Database
    store: Store
    environment: Mapping[str, str] = field(default_factory=dict)
    token: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    workers: list[Worker] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queue = Queue(self.database, actor="user:test")
        self.registry = Registry(self.database, actor="user:test")
        self.jobs = Jobs(self.database)

    @property
    def python(self) -> str:
        """The Python that jobs find."""
        return "python3" if self.kind == "docker" else sys.executable

    def settings(self, name: str) -> dict[str, str]:
        """Return the environment variables for a worker of this bed."""
        image = BASE_IMAGE if self.kind == "docker" else ""
        return {
            **FAST,
            "FORGE_DATABASE_URL": self.database.url,
            "FORGE_STORE_URL": self.store.url,
            "FORGE_WORKER_NAME": f"{name}-{self.token}",
            "FORGE_WORKER_DIR": str(self.root / name),
            "FORGE_RUNNER": self.kind,
            "FORGE_ALLOW_PROCESSES": str(self.kind == "process"),
            # Only root can keep containers from the metadata addresses.
            "FORGE_ALLOW_METADATA": str(self.kind == "docker" and os.geteuid() != 0),
            "FORGE_DEFAULT_IMAGE": image,
            "FORGE_CPUS": "4",
            "FORGE_MEMORY_MB": "4096",
            # Each costs a second of this machine; few tests need one.
            "FORGE_SANDBOXES": "0",
            **self.environment,
        }

    def begin(self, name: str = "one", **settings: object) -> Worker:
        """Start a worker; settings as in FORGE_*, in lower case."""
        given = {f"FORGE_{key.upper()}": str(value) for key, value in settings.items()}
        said = self.root / f"{name}-{len(self.workers)}.log"
        with said.open("wb") as log:
            environment = {**os.environ, **self.settings(name), **given}
            process = started("forge_worker.main", [], environment, log)
        worker = Worker(f"{name}-{self.token}", self.root / name, said, process)
        self.workers.append(worker)
        return worker

    def worker(self, name: str = "one", **settings: object) -> Worker:
        """Start a worker and wait until it is ready."""
        worker = self.begin(name, **settings)
        eventually(lambda: not worker.running or "ready" in worker.output)
        assert worker.running, worker.output
        return worker

    def submit(self, *command: str, folder: Path | None = None, **fields: Any) -> int:  # noqa: ANN401  fields of all types
        """Submit a job, with a folder as its bundle; `fields` are those of a JobSpec."""
        defaults: dict[str, Any] = {
            "name": "job",
            "owner": "ann",
            "resources": SMALL,
            "backoff_s": 0,
            # Unexpected failures must show, and not be retried until one succeeds.
            "max_failures": 0,
            "max_losses": 0,
            "grace_s": 10,
            "checkpoint_interval_s": 0.2,
            "bundle_digest": self.upload(folder) if folder else None,
        }
        spec = JobSpec(command=list(command), **{**defaults, **fields})
        if spec.bundle_digest:
            Uploads(self.database).add(spec.owner, spec.bundle_digest)
        return self.queue.submit([spec])[0]

    def script(self, source: str, *arguments: str, **fields: Any) -> int:  # noqa: ANN401  as above
        """Submit a Python program, given as its source."""
        return self.submit(self.python, "-c", source, *arguments, **fields)

    def upload(self, folder: Path) -> str:
        """Store a folder as a bundle and return its digest."""
        bundle = pack(folder, self.root / f"{uuid.uuid4().hex}.tar.zst", limit_bytes=1 << 30)
        self.store.put_file(keys.bundle(bundle.digest), bundle.path)
        return bundle.digest

    def job(self, job_id: int) -> Row:
        return self.jobs.job(job_id)

    def ended(self, job_id: int, timeout: float = 120) -> Row:
        """Wait for a job's outcome and return it."""
        eventually(lambda: State(self.job(job_id)["state"]).terminal, timeout, 0.05)
        return self.job(job_id)

    def succeeds(self, job_id: int, timeout: float = 120) -> None:
        """Wait for a job's outcome, which must be success."""
        row = self.ended(job_id, timeout)
        history = [
            (end["reason"], end["exit_code"], end["detail"]) for end in self.jobs.attempts(job_id)
        ]
        assert row["state"] == "succeeded", (history, self.log(job_id)[-500:])

    def reasons(self, job_id: int) -> list[str]:
        """Return the reason of each attempt, in order."""
        return [row["reason"] for row in self.jobs.attempts(job_id)]

    def log(self, job_id: int, attempt: int | None = None) -> bytes:
        """Return a job's stored output, with each chunk checked against its row."""
        pieces = []
        place: dict[int, int] = {}
        for chunk in self._log_chunks(job_id, attempt):
            piece = zstd.decompress(self.store.get(chunk["key"]))
            assert hashlib.sha256(piece).hexdigest() == chunk["sha256"]
            assert (len(piece), place.get(chunk["token"], 0)) == (chunk["bytes"], chunk["start"])
            place[chunk["token"]] = chunk["start"] + chunk["bytes"]
            pieces.append(piece)
        return b"".join(pieces)

    def _log_chunks(self, job_id: int, attempt: int | None) -> Iterator[Row]:
        after = (0, 0, -1)
        while rows := self.jobs.log_chunks(job_id, after=after, attempt=attempt):
            yield from rows
            after = (rows[-1]["token"], rows[-1]["rank"], rows[-1]["number"])

    def says(self, job_id: int, text: str, timeout: float = 120) -> None:
        """Wait until a job's stored output contains `text`."""

        def said() -> bool:
            log = self.log(job_id)
            assert text.encode() in log, log[-500:]
            return True

        eventually(said, timeout, 0.05)

    def told(self, job_id: int, word: str) -> list[str]:
        """Wait for the whole line that begins with a word, and return its other words."""
        # What a program prints at once may be stored in pieces.
        line = re.compile(rf"^{word} (.*)\n", re.MULTILINE)
        found = eventually(lambda: line.search(self.log(job_id).decode()), every=0.05)
        assert found is not None
        return found[1].split()

    def artifacts(self, job_id: int) -> dict[str, bytes]:
        """Return the stored artifacts of a job by path, each checked against its row."""
        found = {row["path"]: row for row in self.jobs.artifacts(job_id)}
        content = {path: self._content(row["key"]) for path, row in found.items()}
        for path, row in found.items():
            assert hashlib.sha256(content[path]).hexdigest() == row["sha256"]
        return content

    def _content(self, key: str) -> bytes:
        if not in_chunks(key):
            return self.store.get(key)
        return b"".join(map(self.store.get, chunk_list(self.store, key).objects))

    def objects(self, prefix: str) -> dict[str, str]:
        """Return the SHA-256 of each object below a prefix."""
        return {
            found.key: hashlib.sha256(self.store.get(found.key)).hexdigest()
            for found in self.store.list(prefix)
        }

    def leases(self) -> int:
        with self.database.connection() as connection:
            return len(connection.execute("SELECT job_id FROM lease").fetchall())

    def left_behind(self) -> list[str]:
        """Return processes, containers and folders of this bed that are still on the machine."""
        places = [str(worker.folder) for worker in self.workers]
        left = [f"folder {path}" for place in places for path in Path(place).glob("jobs/*")]
        left += [f"process {line}" for line in processes_below(places)]
        return left + [f"container {name}" for name in self._containers()]

    def close(self) -> None:
        """Stop the workers gracefully, and check that nothing is left of them.

        Raises:
            AssertionError: a worker did not exit cleanly, or something is left.
        """
        for worker in self.workers:
            if worker.running:
                worker.send(signal.SIGCONT)
                code = worker.leave()
                assert code == 0, worker.output
        left = self.left_behind()
        assert left == [], left
        assert self.leases() == 0
        # They exit by themselves, just after their agent.
        eventually(lambda: not [one for worker in self.workers for one in keepers_of(worker)])

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Stop the workers after the block; if it fails, or they do, end everything by force."""
        try:
            yield
            self.close()
        except BaseException:
            self._end_all()
            raise

    def _end_all(self) -> None:
        for worker in self.workers:
            if worker.running:
                worker.send(signal.SIGCONT)
                worker.kill()
        for name in self._containers():
            subprocess.run(["docker", "rm", "-f", name], stdout=subprocess.DEVNULL, check=False)
        for line in processes_below([str(worker.folder) for worker in self.workers]):
            with suppress(ProcessLookupError):
                os.kill(int(line.split()[0]), signal.SIGKILL)

    def _containers(self) -> list[str]:
        # A query to the engine costs more than many tests.
        if self.kind != "docker":
            return []
        return containers_of(self.token) + sandboxes_of(*(one.folder for one in self.workers))


def processes_below(places: list[str]) -> list[str]:
    """Return live processes that work in one of the folders or name it, as "pid command"."""
    sought = [os.fsencode(place) for place in places]
    found = []
    for process in _processes():
        words = [_said(process / "cmdline"), _said(process / "environ"), _folder(process)]
        if any(place in word for place in sought for word in words):
            found.append(f"{process.name} {os.fsdecode(words[0]).replace(chr(0), ' ')}")
    return found


def keepers_of(worker: Worker) -> list[int]:
    """Return the programs that hold the pipes of a worker's process."""
    ending = f"\0{MARK}\0{worker.process.pid}\0".encode()
    return [int(one.name) for one in _processes() if _said(one / "cmdline").endswith(ending)]


def _processes() -> Iterator[Path]:
    # Not through psutil, which takes four times as long: each bed looks at every process.
    return Path("/proc").glob("[0-9]*")


def _said(file: Path) -> bytes:
    """Return what a process says of itself, or nothing if it is over or another user's."""
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _folder(process: Path) -> bytes:
    try:
        return os.fsencode((process / "cwd").readlink())
    except OSError:
        return b""


def containers_of(token: str) -> list[str]:
    """Return the containers, running or not, of workers whose name ends in `token`."""
    return [name for name, worker in _labelled("forge.worker") if worker.endswith(token)]


def sandboxes_of(*folders: Path) -> list[str]:
    """Return the sandboxes, running or not, of the workers in these folders."""
    ids = {str(known_id(folder)) for folder in folders}
    return [name for name, folder in _labelled("forge.sandbox.folder") if folder in ids]


def _labelled(label: str) -> list[tuple[str, str]]:
    listed = subprocess.run(
        ["docker", "ps", "-a", "--format", f'{{{{.Names}}}} {{{{.Label "{label}"}}}}'],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line.split() for line in listed.stdout.splitlines()]
    return [(words[0], words[1]) for words in lines if len(words) > 1]


@contextmanager
def bed(
    kind: str,
    root: Path,
    database_url: str,
    store_url: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Bed]:
    """Make a bed of `process` or `docker` workers; check at its end that nothing is left behind."""
    if kind == "docker":
        require_docker()
    if store_url is None:
        (root / "store").mkdir()
        store_url = (root / "store").as_uri()
    with Database(database_url) as database:
        made = Bed(kind, root, database, open_store(store_url), environment or {})
        with made.ending():
            yield made
