"""`forge-worker --status`: the worker's state as JSON and as text."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Event, Thread
from time import time
from typing import Any

from forge_schema.database.pool import Database
from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import MIB, counted, duration_text, size_text
from forge_schema.queue.attempt_records import OwnLeases

from forge_worker.agent import crashes, outbox, state_file
from forge_worker.agent.state_file import queue_words
from forge_worker.attempt_folders import Folders
from forge_worker.commands.doctor import lacking
from forge_worker.connect import connect
from forge_worker.devices.inventory import Inventory
from forge_worker.machine.admission import Observer, limits_of
from forge_worker.machine.gpu_health import Quarantine
from forge_worker.queue.http.session import LeaseUnknown
from forge_worker.runners.docker.engine import engine_answers
from forge_worker.runners.process.confinement import WANTED, parents
from forge_worker.settings.settings import WorkerSettings
from forge_worker.worker_folder import holder

CPU_LOOK_S = 0.5
QUEUE_PATIENCE_S = 5.0

Json = dict[str, Any]
Ask = Callable[[WorkerSettings, int, set[int]], dict[int, str]]


def look(settings: WorkerSettings) -> Json:
    """Return the status for JSON; sizes in MiB.

    While an agent runs, the policy is its own; `differs` has what this command was given instead.
    """
    pid = holder(settings.worker_dir)
    report = state_file.read(settings.worker_dir)
    here = state_file.policy(settings)
    policy = here | (report.get("policy", {}) if pid is not None else {})
    given = {name: here[name] for name in here.keys() & settings.model_fields_set}
    in_force = settings.model_copy(update=policy)
    left = _left_behind(settings) if pid is None else []
    return {
        "running": pid is not None,
        "pid": pid,
        "worker": report.get("worker") or settings.known_name(),
        "folder": str(settings.worker_dir),
        "queue": report.get("queue") or queue_words(settings),
        "does": report if pid is not None else {},
        "left_behind": left,
        "crashes": crashes.summary(settings.worker_dir),
        "untold": _untold(settings),
        "leases": _leases(settings, report, left),
        "sees": _seen(in_force),
        "policy": {
            **policy,
            "processes_held_by": [setting for setting in WANTED if setting in parents()],
        },
        "policy_of": "agent" if pid is not None and "policy" in report else "command",
        "differs": {name: it for name, it in sorted(given.items()) if it != policy[name]},
        "lacks": [lack.reported() for lack in lacking(in_force)],
    }


def _untold(settings: WorkerSettings) -> list[int]:
    """Return the ids of jobs whose results wait until the queue answers."""
    with suppress(OSError):
        if waiting := outbox.left_in(settings.worker_dir):
            return [end.fence.job_id for end in waiting.ends()]
    return []


def _seen(settings: WorkerSettings) -> Json:
    seen: Json = {"engine": settings.uses_engine and engine_answers()}
    try:
        inventory = Inventory(settings.gpus)
    except ForgeError as error:
        seen |= {"accelerator": None, "gpus": [], "gpus_fault": error.message}
    else:
        gpus = [gpu.reported() for gpu in inventory.gpus]
        seen |= {"accelerator": inventory.accelerator, "gpus": gpus}
    seen["quarantined"] = Quarantine(settings.worker_dir).reasons()
    there = settings.worker_dir if settings.worker_dir.is_dir() else settings.worker_dir.parent
    with suppress(OSError):
        observer = Observer(there)
        Event().wait(CPU_LOOK_S)
        observation = observer.look([gpu["uuid"] for gpu in seen["gpus"]])
        past = list(limits_of(settings).passed(observation))
        seen |= {"machine": observation.reported(), "past_limits": past}
    return seen


def _left_behind(settings: WorkerSettings) -> list[Json]:
    """Return the jobs whose folders a killed agent has left."""
    jobs = settings.worker_dir / "jobs"
    roots = sorted(jobs.iterdir()) if jobs.is_dir() else []
    fences = {root.name: Folders(root).fence() for root in roots}
    return [
        {"folder": name, "job": fence.job_id if fence else None} for name, fence in fences.items()
    ]


def _leases(settings: WorkerSettings, report: Json, left: list[Json]) -> Json:
    """Return whether the worker holds each job's lease, or why that is unknown."""
    jobs = {job["job"] for job in [*report.get("jobs", []), *left] if job["job"] is not None}
    if not jobs:
        return {}
    if not settings.queue_is_named:
        return {"unknown": "no queue is configured here"}
    ask: Ask = _over_http if settings.url else _directly
    answer: Json = {"unknown": f"the queue did not answer within {duration_text(QUEUE_PATIENCE_S)}"}

    def asked() -> None:
        try:
            held = ask(settings, report.get("worker_id", 0), jobs)
            answer.update({"unknown": "", **{str(job): held[job] for job in sorted(held)}})
        except (ForgeError, OSError) as error:
            answer["unknown"] = str(error)

    asking = Thread(target=asked, name="leases", daemon=True)
    asking.start()
    asking.join(QUEUE_PATIENCE_S)
    held_by_job = dict(answer)
    return (
        held_by_job
        if held_by_job["unknown"]
        else {job: held for job, held in held_by_job.items() if job != "unknown"}
    )


def _directly(settings: WorkerSettings, worker_id: int, jobs: set[int]) -> dict[int, str]:
    with Database(settings.database_url, size=1) as database:
        leases = OwnLeases(database, worker_id)
        return {job: "held" if leases.job(job) else "lost" for job in jobs}


def _over_http(settings: WorkerSettings, _worker_id: int, jobs: set[int]) -> dict[int, str]:
    with connect(settings) as transport:
        return {job: _standing(transport.gateway.latest_checkpoint, job) for job in jobs}


def _standing(ask: Callable[[int], object], job: int) -> str:
    # The queue lists a job's checkpoints only for the holder of its lease.
    try:
        ask(job)
    except LeaseUnknown:
        return "lost"
    return "held"


def words(report: Json) -> str:
    """Return the lines to print."""
    return "\n".join(
        [
            *_agent_lines(report),
            *_job_lines(report),
            *_machine_lines(report),
            *_policy_lines(report),
            *_lack_lines(report),
        ]
    )


def _agent_lines(report: Json) -> Iterator[str]:
    name = report["worker"] or "(no name yet)"
    if report["running"]:
        pid = f"process {report['pid']}" if report["pid"] else "process unknown"
        does = report["does"]
        draining = ", draining" if does.get("draining") else ""
        yield f"worker {name}: an agent is running ({pid}, version {does.get('version')}{draining})"
        condition = does.get("condition") or {}
        if why := condition.get("constrained"):
            yield f"  constrained: {why}"
        if why := condition.get("no_notices"):
            yield f"  preemption notices cannot be seen: {why}"
        if why := does.get("refused"):
            yield f"  refused by the queue, and tries again every few minutes: {why}"
    else:
        yield f"worker {name}: no agent is running"
    if crashes := report["crashes"]:
        waits = f"; next start in {duration_text(crashes['waits_s'])}" if crashes["waits_s"] else ""
        yield f"  crashes in a row: {crashes['bad_ends']}{waits}"
        yield f"    last: {crashes['why']}"
    for job in report["untold"]:
        yield f"  the result of job {job} waits until the queue answers"
    yield f"  folder: {report['folder']}"
    yield f"  queue: {', '.join(report['queue']) or 'not configured'}"
    for folder in report.get("beside", []):
        yield f"  another runs in {folder}: forge-worker --status --worker-dir {folder}"


def _job_lines(report: Json) -> Iterator[str]:
    leases = report["leases"]
    jobs = report["does"].get("jobs", [])
    for job in jobs:
        yield _job_line(job, leases)
    if report["running"] and not jobs:
        yield "  no running jobs"
    for job in report["left_behind"]:
        line = f"job {job['job']}" if job["job"] is not None else "an unknown job"
        lease = leases.get(str(job["job"]))
        also = f", lease {lease}" if lease else ""
        yield f"  left behind: {line} in jobs/{job['folder']}{also}; --recover removes it"
    if leases.get("unknown"):
        yield f"  whether the leases are held is unknown: {leases['unknown']}"


def _job_line(job: Json, leases: Json) -> str:
    lease = leases.get(str(job["job"]))
    parts = [
        f"{job['phase']} for {duration_text(time() - job['since'])}",
        *_lent(job),
        *([f"stopping: {job['stopping']}"] if job["stopping"] else []),
        *([f"lease {lease}"] if lease else []),
    ]
    return f"  job {job['job']} ({job['name']}), attempt {job['attempt']}: {', '.join(parts)}"


def _lent(job: Json) -> list[str]:
    if not job["cpus"] and job["disk_mb"]:
        return [f"ended, and holds only its {size_text(job['disk_mb'] * MIB)} of disk"]
    gpus = [f"GPU {uuid}" for uuid in job["gpus"]]
    return [counted(job["cpus"], "CPU"), size_text(job["memory_mb"] * MIB), *gpus]


def _machine_lines(report: Json) -> Iterator[str]:
    seen = report["sees"]
    yield "machine:"
    if machine := seen.get("machine"):
        yield (
            f"  CPUs used to {machine['cpu_percent']:.0f}%, memory to"
            f" {machine['memory_percent']:.0f}%, with {size_text(machine['memory_free_mb'] * MIB)}"
            f" of memory and {size_text(machine['disk_free_mb'] * MIB)} of disk free"
        )
    for why in seen.get("past_limits", []):
        yield f"  past a limit: {why}"
    for gpu in seen["gpus"]:
        look = (seen.get("machine") or {}).get("gpus", {}).get(gpu["uuid"], {})
        used = "".join(f", {name} {value}" for name, value in look.items())
        yield f"  GPU {gpu['uuid']}: {gpu['name']}, {size_text(gpu['vram_mb'] * MIB)}{used}"
    if not seen["gpus"]:
        yield f"  GPUs: {seen.get('gpus_fault') or 'none'}"
    for uuid, why in seen.get("quarantined", {}).items():
        yield f"  GPU {uuid} is in quarantine: {why}; --recover gives it to jobs again"
    yield f"  container engine: {'answers' if seen['engine'] else 'none in use'}"


def _policy_lines(report: Json) -> Iterator[str]:
    policy = report["policy"]
    profile = f", profile {policy['profile']}" if policy["profile"] else ""
    whose = (
        "of the running agent" if report["policy_of"] == "agent" else "of this command's settings"
    )
    yield f"policy {whose}:"
    yield (
        f"  gives jobs {counted(policy['cpus'], 'CPU')},"
        f" {size_text(policy['memory_mb'] * MIB)} of memory,"
        f" {size_text(policy['disk_mb'] * MIB)} of disk; at most"
        f" {counted(policy['max_jobs'], 'job')} at once{profile}"
    )
    held = ", ".join(policy["processes_held_by"])
    by = f"held by control groups ({held})" if held else "polled, and bound to CPUs"
    yield f"  jobs as processes: {by if policy['allow_processes'] else 'not allowed'}"
    images = policy["default_image"] or "none"
    yield f"  images: {', '.join(policy['allowed_images'])}; for jobs without an image: {images}"
    for name, given in report["differs"].items():
        flag = name.replace("_", "-")
        yield f"  this command was given another --{flag}, which is not in force: {given}"


def _lack_lines(report: Json) -> Iterator[str]:
    for lack in report["lacks"]:
        yield f"missing: {lack['what']}"
        yield f"  consequence: {lack['so']}"
        yield f"  fix: {lack['do']}"
