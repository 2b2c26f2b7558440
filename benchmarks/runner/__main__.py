"""What a job costs besides itself: from claim to first output, and the whole of a no-op job.

`.venv/bin/python benchmarks/runner` prints the tables of RESULTS.md. Each round runs the same
command in turn, so that what disturbs the machine falls on all: before each kind of job what it is
compared with, `docker run` or a subprocess. The kinds are a job in a container with a sandbox that
waits for it, one without, and a job that is a process.
"""

import argparse
import os
import platform
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from pathlib import Path
from statistics import median
from threading import Event, Thread
from types import ModuleType
from typing import Any

from docker import APIClient
from forge_client.project.bundle import pack
from forge_client.up.postgres import Postgres
from forge_schema.database import migrate
from forge_schema.database.pool import Database
from forge_schema.model.spec import JobSpec, Resources
from forge_schema.program.log import configure_log
from forge_schema.queue.queue import Queue
from forge_schema.storage import keys, open_store
from forge_worker.agent.agent import Agent
from forge_worker.agent.jobs import Reaper
from forge_worker.agent.outbox import Outbox
from forge_worker.attempt_folders import Folders
from forge_worker.connect import connect
from forge_worker.job_io.checkpoints import CheckpointSync
from forge_worker.job_runs import job_run
from forge_worker.job_runs.parts import Parts
from forge_worker.prepare.bundle import BundleCache
from forge_worker.queue.gateway import SqlGateway
from forge_worker.runners.choice import available
from forge_worker.runners.docker.runner import DockerRunner
from forge_worker.runners.process.runner import ProcessRunner
from forge_worker.settings.settings import WorkerSettings
from forge_worker.worker_folder import known_id

IMAGE = os.environ.get("FORGE_TEST_IMAGE", "forge-test-base:latest")
COMMAND = ["sh", "-c", "echo up"]
KINDS = ("docker", "no sandbox", "process")
RUNNERS = {"docker": "docker", "no sandbox": "docker", "process": "process"}
PLAIN = {"docker": ["docker", "run", "--rm", IMAGE, *COMMAND], "process": COMMAND}
SANDBOXES = 2
REST_S = 0.8
LOOK_S = 0.001
# Threads whose requests are not for a single job.
OTHERS = ("health", "reap", "sandboxes")
SETTLE_S, SLEEP_S = 15, 30

Took = dict[str, float]
Submit = Callable[..., list[int]]
SMALL = Resources(cpus=1, memory_mb=128, disk_mb=100)
TINY = Resources(cpus=0.02, memory_mb=16, disk_mb=10)


class Watch:
    """What one job took, phase by phase; only one runs at a time."""

    def __init__(self) -> None:
        self.took: Took = {}
        self.calls = self.running = self.gone = 0
        self.began = 0.0
        self.ended = Event()

    def begin(self) -> None:
        self.took = {}
        self.calls = 0
        self.ended.clear()

    def timed(self, owner: type | ModuleType, method: str, phase: str) -> None:
        """Have a method's time counted."""

        def measured(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:  # noqa: ANN401  as it is
            began = time.perf_counter()
            try:
                return original(*arguments, **named)
            finally:
                if threading.current_thread().name not in OTHERS:
                    self.took[phase] = time.perf_counter() - began

        wrap(owner, method, measured)

    def claim(self, original: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401  as above
        """Count the claim that brought the job, and the job from there on."""
        began = time.perf_counter()
        answer = original(*arguments)
        if answer[1]:
            self.began = began
            self.took["claim"] = time.perf_counter() - began
        return answer

    def run(self, original: Callable[..., Any], parts: Parts, *arguments: Any) -> Any:  # noqa: ANN401  as above
        """Note when a job's log has its first byte."""
        self.running += 1
        Thread(target=self._look, args=(parts.attempt.folders.log,), daemon=True).start()
        return original(parts, *arguments)

    def call(self, original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:  # noqa: ANN401  as above
        """Count a request to the engine for the job."""
        if threading.current_thread().name not in OTHERS:
            self.calls += 1
        return original(*arguments, **named)

    def report(self, original: Callable[..., Any], *arguments: object, **named: object) -> Any:  # noqa: ANN401  as above
        """Note the report of the job's end."""
        answer = original(*arguments, **named)
        self.took["whole"] = time.perf_counter() - self.began
        self.took["requests to the engine until then"] = self.calls / 1000
        return answer

    def over(self, original: Callable[..., Any], *arguments: object) -> None:
        """Note that nothing is left of the job."""
        original(*arguments)
        self.took["requests to the engine in all"] = self.calls / 1000
        self.gone += 1
        self.ended.set()

    def _look(self, log: Path) -> None:
        while not self.ended.is_set():
            if b"up" in log.read_bytes():
                self.took["first output"] = time.perf_counter() - self.began
                return
            time.sleep(LOOK_S)


def wrap(owner: type | ModuleType, method: str, around: Callable[..., Any]) -> None:
    """Put something around a method."""
    original = getattr(owner, method)

    @wraps(original)
    def wrapped(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401  any method
        return around(original, *arguments, **named)

    setattr(owner, method, wrapped)


def watched() -> Watch:
    """Have all phases counted from now on."""
    watch = Watch()
    wrap(SqlGateway, "finish_and_claim", watch.claim)
    watch.timed(Folders, "make", "folders")
    watch.timed(BundleCache, "unpack", "bundle")
    watch.timed(CheckpointSync, "restore", "look for a checkpoint")
    for runner in (DockerRunner, ProcessRunner):
        watch.timed(runner, "start", "start, whole")
    watch.timed(APIClient, "create_container", "of that, the engine's create")
    watch.timed(APIClient, "start", "of that, the engine's start")
    wrap(APIClient, "request", watch.call)
    watch.timed(job_run, "supervise", "until its end")
    wrap(job_run, "supervise", watch.run)
    watch.timed(job_run, "finish", "log and artifacts")
    watch.timed(Outbox, "deliver", "report")
    wrap(Outbox, "deliver", watch.report)
    watch.timed(Reaper, "let_go", "removal, after the report")
    wrap(Reaper, "let_go", watch.over)
    return watch


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30, help="jobs of each kind")
    parser.add_argument("--burst", type=int, default=0, help="measure many jobs at once")
    parser.add_argument("--only", choices=("docker", "process"), help="only this kind of job")
    parser.add_argument("--sleeping", type=int, default=0, help="measure jobs that only sleep")
    options = parser.parse_args()
    configure_log()
    watch = watched()
    if options.sleeping:
        for kind in ("docker", "process"):
            if options.only in {None, kind}:
                sleeping(watch, kind, options.sleeping)
        return
    if options.burst:
        burst(watch, options.burst, options.rounds)
        return
    rounds = options.rounds
    kinds = [kind for kind in KINDS if options.only in {None, RUNNERS[kind]}]
    with (
        tempfile.TemporaryDirectory(prefix="forge-bench-") as folder,
        bench(Path(folder), kinds) as (_, submit),
    ):
        containers = "docker" in kinds
        still = partial(settled, Path(folder) / "docker") if containers else rest
        plain: dict[str, list[Took]] = defaultdict(list)
        jobs: dict[str, list[Took]] = defaultdict(list)
        for _ in range(rounds + 1):
            for kind in kinds:
                still()
                plain[kind].append(run_plain(PLAIN[RUNNERS[kind]]))
                jobs[kind].append(run_job(watch, partial(submit, kind)))
    print(f"\nPython {platform.python_version()}, ms, median of {rounds} rounds\n")
    # The first finds nothing in any cache.
    compare({k: v[1:] for k, v in plain.items()}, {k: v[1:] for k, v in jobs.items()})
    phases({k: v[1:] for k, v in jobs.items()})


def run_plain(command: list[str]) -> Took:
    """Run a command without Forge."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        first = time.perf_counter() - began
    assert process.returncode == 0
    return {"first output": first, "whole": time.perf_counter() - began}


def run_job(watch: Watch, submit: Callable[[], object]) -> Took:
    """Run a command as a job."""
    watch.begin()
    submit()
    assert watch.ended.wait(60), "the job did not end"
    return watch.took


def settled(folder: Path) -> None:
    """Wait until the worker in a folder has its sandboxes again, and nothing to remove."""
    label = f"label=forge.sandbox.folder={known_id(folder)}"
    list_them = ["docker", "ps", "--all", "--quiet", "--filter", label]
    while len(subprocess.check_output(list_them).split()) != SANDBOXES:
        Event().wait(0.1)


def rest() -> None:
    """Wait until a worker has the shim of its next process again."""
    Event().wait(REST_S)


def burst(watch: Watch, jobs: int, rounds: int) -> None:
    """Print how long many jobs take that are submitted at once."""
    took: dict[str, list[float]] = defaultdict(list)
    kinds = ("docker", "no sandbox")
    with (
        tempfile.TemporaryDirectory(prefix="forge-bench-") as folder,
        bench(Path(folder), kinds) as (_, submit),
    ):
        for _ in range(rounds + 1):
            for kind in kinds:
                settled(Path(folder) / "docker")
                watch.gone, began = 0, time.perf_counter()
                for _ in range(jobs):
                    submit(kind)
                while watch.gone < jobs:
                    Event().wait(LOOK_S)
                took[kind].append(time.perf_counter() - began)
    with_one, without = (took[kind][1:] for kind in kinds)
    ratios = sorted(one / other for one, other in zip(with_one, without, strict=True))
    low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    print(f"{jobs} jobs: {median(with_one):.2f} s, without sandboxes {median(without):.2f} s")
    print(f"ratio {median(ratios):.2f}, middle half {low:.2f} to {high:.2f}")


def sleeping(watch: Watch, kind: str, jobs: int) -> None:
    """Print what an agent costs, in this process, while its jobs only sleep."""
    watch.running = 0
    watch.ended.set()
    with (
        tempfile.TemporaryDirectory(prefix="forge-bench-") as folder,
        bench(Path(folder), (kind,)) as (queue, submit),
    ):
        sleep(watch, f"{kind}, no job")
        ids = [job for _ in range(jobs) for job in submit(kind, ["sleep", "3600"], TINY)]
        while watch.running < jobs:
            Event().wait(1)
        sleep(watch, f"{kind}, {jobs} jobs")
        for job in ids:
            queue.cancel(job)


def sleep(watch: Watch, what: str) -> None:
    """Print threads, CPU time and requests to the engine of the next seconds."""
    Event().wait(SETTLE_S)
    began, watch.calls = time.process_time(), 0
    Event().wait(SLEEP_S)
    used = 100 * (time.process_time() - began) / SLEEP_S
    threads = threading.active_count()
    print(f"| {what} | {threads} threads | {used:.1f} % of a core | {watch.calls} requests |")


def compare(plain: dict[str, list[Took]], jobs: dict[str, list[Took]]) -> None:
    """Print jobs beside what they are compared with."""
    print("| | plain | as a job | more | ratio | middle half of the ratios |")
    print("|---|---|---|---|---|---|")
    for kind, took in jobs.items():
        for what in ("first output", "whole"):
            pairs = list(zip(plain[kind], took, strict=True))
            ratios = sorted(job[what] / bare[what] for bare, job in pairs)
            more = 1000 * median(job[what] - bare[what] for bare, job in pairs)
            bare, job = (1000 * median(t[what] for t in side[kind]) for side in (plain, jobs))
            low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
            cells = f"{bare:.1f} | {job:.1f} | {more:.1f} | {median(ratios):.2f}"
            print(f"| {kind}: {what} | {cells} | {low:.2f} to {high:.2f} |")


def phases(jobs: dict[str, list[Took]]) -> None:
    """Print where the time goes."""
    print(f"\n| phase | {' | '.join(jobs)} |\n|{'---|' * (len(jobs) + 1)}")
    every = dict.fromkeys(name for kind in jobs for took in jobs[kind] for name in took)
    for phase in every:
        found = ([took[phase] for took in jobs[kind] if phase in took] for kind in jobs)
        cells = [f"{1000 * median(took):.1f}" if took else "" for took in found]
        print(f"| {phase} | {' | '.join(cells)} |")


@contextmanager
def bench(root: Path, kinds: Sequence[str] = KINDS) -> Iterator[tuple[Queue, Submit]]:
    """Start a database, a store and a worker of each kind; yield what submits a job to one."""
    (root / "store").mkdir()
    server = Postgres(root / "pg")
    server.start()
    try:
        migrate.upgrade(server.url)
        with ExitStack() as held:
            database = held.enter_context(Database(server.url))
            for kind in kinds:
                held.enter_context(worker(kind, server.url, root))
            project = root / "project"
            project.mkdir()
            (project / "train.py").write_text("print('up')\n")
            bundle = pack(project, root / "bundle", limit_bytes=1 << 20)
            store = open_store((root / "store").as_uri())
            store.put_file(keys.bundle(bundle.digest), bundle.path)
            queue = Queue(database, actor="user:bench")
            yield (
                queue,
                lambda kind, command=COMMAND, resources=SMALL: queue.submit(
                    [
                        JobSpec(
                            name="no-op",
                            owner="bench",
                            command=command,
                            resources=resources,
                            labels={"kind": kind},
                            bundle_digest=bundle.digest,
                        )
                    ],
                    any_owner=True,
                ),
            )
    finally:
        server.stop()


@contextmanager
def worker(kind: str, url: str, root: Path) -> Iterator[None]:
    """Have a worker of a kind run in this process."""
    folder = root / kind
    settings = WorkerSettings.model_validate(
        {
            "database_url": url,
            "store_url": (root / "store").as_uri(),
            "worker_name": kind,
            "worker_dir": folder,
            "runner": RUNNERS[kind],
            "sandboxes": SANDBOXES if kind == "docker" else 0,
            "allow_processes": kind == "process",
            "default_image": IMAGE if RUNNERS[kind] == "docker" else "",
            "labels": {"kind": kind},
            "disk_floor_mb": 0,
            "sweep": False,
        }
    )
    folder.mkdir()
    with connect(settings) as transport:
        agent = Agent(settings, transport.gateway, transport.objects, available(settings))
        with transport.loops(work=agent.claim_loop.wake, asked=agent.lease_renewal.wake):
            thread = Thread(target=agent.run, name=kind)
            thread.start()
            try:
                yield
            finally:
                agent.leaving.drain()
                thread.join()


if __name__ == "__main__":
    main()
