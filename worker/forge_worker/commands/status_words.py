"""What `--status` prints for people."""

from collections.abc import Iterator
from time import time
from typing import Any

Json = dict[str, Any]


def words(told: Json) -> str:
    """Return the lines to print."""
    return "\n".join([*_agent(told), *_jobs(told), *_machine(told), *_policy(told), *_lacks(told)])


def _agent(told: Json) -> Iterator[str]:
    name = told["worker"] or "(no name yet)"
    if told["running"]:
        pid = f"process {told['pid']}" if told["pid"] else "process unknown"
        does = told["does"]
        draining = ", draining" if does.get("draining") else ""
        yield f"worker {name}: an agent runs here ({pid}, version {does.get('version')}{draining})"
        if why := (does.get("condition") or {}).get("constrained"):
            yield f"  constrained: {why}"
    else:
        yield f"worker {name}: no agent runs here"
    if crashes := told["crashes"]:
        waits = f"; it waits {crashes['waits_s']} s more" if crashes["waits_s"] else ""
        yield f"  starts that ended badly, in a row: {crashes['bad_ends']}{waits}"
        yield f"    the last: {crashes['why']}"
    for job in told["untold"]:
        yield f"  the end of job {job} waits until the queue answers"
    yield f"  folder: {told['folder']}"
    yield f"  queue: {', '.join(told['queue']) or 'not named here'}"


def _jobs(told: Json) -> Iterator[str]:
    leases = told["leases"]
    jobs = told["does"].get("jobs", [])
    for job in jobs:
        yield _job(job, leases)
    if told["running"] and not jobs:
        yield "  it runs no jobs"
    for job in told["left_behind"]:
        said = f"job {job['job']}" if job["job"] is not None else "a job that cannot be told"
        lease = leases.get(str(job["job"]))
        also = f", lease {lease}" if lease else ""
        yield f"  left behind: {said} in jobs/{job['folder']}{also}; --recover clears it"
    if leases.get("unknown"):
        yield f"  whether the leases hold is not known: {leases['unknown']}"


def _job(job: Json, leases: Json) -> str:
    lease = leases.get(str(job["job"]))
    parts = [
        f"{job['phase']} for {max(0, time() - job['since']):.0f} s",
        f"{job['cpus']:g} CPUs",
        f"{job['memory_mb']} MiB",
        *(f"GPU {uuid}" for uuid in job["gpus"]),
        *([f"stopping: {job['stopping']}"] if job["stopping"] else []),
        *([f"lease {lease}"] if lease else []),
    ]
    return f"  job {job['job']} ({job['name']}), attempt {job['attempt']}: {', '.join(parts)}"


def _machine(told: Json) -> Iterator[str]:
    seen = told["sees"]
    yield "machine:"
    if machine := seen.get("machine"):
        yield (
            f"  CPUs used to {machine['cpu_percent']:.0f} %, memory to"
            f" {machine['memory_percent']:.0f} % ({machine['memory_free_mb']} MiB free),"
            f" {machine['disk_free_mb']} MiB of disk free"
        )
    for why in seen.get("past_limits", []):
        yield f"  past a limit: {why}"
    for gpu in seen["gpus"]:
        look = (seen.get("machine") or {}).get("gpus", {}).get(gpu["uuid"], {})
        used = "".join(f", {name} {value}" for name, value in look.items())
        yield f"  GPU {gpu['uuid']}: {gpu['name']}, {gpu['vram_mb']} MiB{used}"
    if not seen["gpus"]:
        yield f"  GPUs: {seen.get('gpus_fault') or 'none'}"
    for uuid, why in seen.get("quarantined", {}).items():
        yield f"  GPU {uuid} is in quarantine: {why}; --recover lends it again"
    yield f"  container engine: {'answers' if seen['engine'] else 'none in use'}"


def _policy(told: Json) -> Iterator[str]:
    policy = told["policy"]
    profile = f", profile {policy['profile']}" if policy["profile"] else ""
    yield "policy, as set where this was asked:"
    yield (
        f"  lends {policy['cpus']:g} CPUs, {policy['memory_mb']} MiB of memory,"
        f" {policy['disk_mb']} MiB of disk, to {policy['max_jobs']} jobs at most{profile}"
    )
    held = ", ".join(policy["processes_held_by"])
    by = f"held by control groups ({held})" if held else "watched, and bound to CPUs"
    yield f"  jobs as processes: {by if policy['allow_processes'] else 'not allowed'}"
    images = policy["default_image"] or "none"
    yield f"  images: {', '.join(policy['allowed_images'])}; for jobs that name none: {images}"


def _lacks(told: Json) -> Iterator[str]:
    for lack in told["lacks"]:
        yield f"missing: {lack['what']}"
        yield f"  so: {lack['so']}"
        yield f"  to do: {lack['do']}"
