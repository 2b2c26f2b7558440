"""Find what would start a job: changes that are all needed, then alternatives."""

from collections.abc import Iterator
from itertools import islice
from shlex import quote

from forge_schema.database.pool import Row
from forge_schema.explain.changes import Changes, for_free, for_idle, free_now, in_words
from forge_schema.explain.fit import wishes
from forge_schema.explain.fleet import SERVES, Candidate, FleetChances
from forge_schema.explain.limits import sweeper_missing
from forge_schema.explain.text import LABEL, wish
from forge_schema.model.explanation import Chance, Limit, Remedy, Requirement, WorkerChance
from forge_schema.model.quantities import counted, duration_text, names_text
from forge_schema.model.spec import MOST_PARALLEL, RUNS, RUNS_IMAGES, RUNS_PROJECTS, SECRET

# Maximum number of alternatives, and of workers (best first) examined for them.
ALTERNATIVES = 5
LOOKED_AT = 50
HIGHEST = 1000
# Requirements that almost every worker meets; named only if one does not.
PLAIN = {"cpus", "memory_mb", "disk_mb", LABEL + RUNS}


def remedies(job: Row, limits: list[Limit], fleet: FleetChances) -> list[Remedy]:
    """Return what would start a waiting job, best first; none if nothing must change."""
    needed = of_limits(job, limits)
    if any(chance.chance is Chance.STARTS for chance in fleet.chances):
        return needed
    alternatives = {
        (alternative.code, str(alternative.changes or alternative.worker)): alternative
        for alternative in _alternatives(job, fleet)
    }
    ways = [*islice(alternatives.values(), ALTERNATIVES), *_image(fleet), *_added(job, fleet)]
    # Where those that are there are known to lack something, what never came is the last hope.
    lacking = any(c.chance is Chance.UNFIT and c.available for c in fleet.chances)
    unknown = {c.worker for c in fleet.chances if c.chance is Chance.NEVER_CAME} if lacking else ()
    return [*needed, *sorted(ways, key=lambda way: way.worker in unknown)]


def of_limits(job: Row, limits: list[Limit]) -> list[Remedy]:
    """Return what the limits on a job need."""
    return [_of_limit(job, limit) for limit in limits]


def _of_limit(job: Row, limit: Limit) -> Remedy:
    match limit.code:
        case "queue_paused":
            command = f"forge queue resume {quote(job['queue'])}"
            return _needed("resume_queue", f"resume the queue {job['queue']}", command)
        case "budget" | "team_budget":
            whose = job["owner"] if limit.code == "budget" else f"the team {job['team']}"
            text = f"ask an admin for a larger budget of {whose}"
            return _needed(f"raise_{limit.code}", text)
        case "backing_off" | "delayed" | "due":
            return _of_time(job, limit)
        case "turn" | "approval":
            return _of_hold(job, limit)
        case _ if limit.jobs:
            command = f"forge explain {limit.jobs[0]}"
            return _needed("wait_for_job", f"wait for job {limit.jobs[0]}", command)
        case _:
            return _of_concurrency(job, limit)


def _of_time(job: Row, limit: Limit) -> Remedy:
    if limit.code != "due":
        return _needed("wait", f"wait {duration_text(limit.wait_s or 0)} until it is due")
    if sweeper_missing(job):
        return _needed("start_sweeper", "start a sweeper", "forge-sweeper")
    return _needed("wait", "wait for the sweeper's next tick")


def _of_hold(job: Row, limit: Limit) -> Remedy:
    if limit.code == "turn":
        text = "wait for jobs of its sweep to end, or let more of them run at once"
        room = min((limit.used or 0) + (limit.before or 0) + 1, MOST_PARALLEL)
        command = f"forge sweep show {quote(job['sweep'])} --parallel {room}"
        return _needed("wait_for_turn", text, command)
    text = "ask an admin to approve it"
    if limit.approval and limit.approval.timeout_s is None:
        text += ", or cancel it and submit it with a time limit (--timeout)"
    return _needed("approve", text, f"forge approve {job['job_id']}")


def _of_concurrency(job: Row, limit: Limit) -> Remedy:
    whose, what = limit.code.split("_")
    name = job[whose]
    room = (limit.used or 0) + (limit.wanted or 0)
    noun = counted(room, "job" if what == "jobs" else "GPU")
    place = quote(name) if whose == "queue" else f"--{whose} {quote(name)}"
    text = f"allow the {whose} {name} {noun} at once, or wait for one of its jobs to end"
    if not limit.used:
        text = f"allow the {whose} {name} {noun} at once"
    return _needed(f"raise_{limit.code}", text, f"forge queue limit {place} --{what} {room}")


def _needed(code: str, text: str, command: str | None = None) -> Remedy:
    return Remedy(code=code, text=text, needed=True, command=command)


def _alternatives(job: Row, fleet: FleetChances) -> Iterator[Remedy]:
    for chance in fleet.chances[:LOOKED_AT]:
        candidate = fleet.candidates[chance.worker_id]
        match chance.chance:
            case Chance.BEHIND | Chance.RESERVED:
                yield from _priority(job, fleet, chance)
            case Chance.BUSY:
                yield from _room(candidate)
            case Chance.UNFIT if candidate.takes:
                yield from _secrets(candidate)
                yield from _less(for_idle(candidate), candidate)
            case Chance.UNFIT | Chance.AVOIDED:
                pass
            case _:
                yield back(candidate, chance)


def _priority(job: Row, fleet: FleetChances, chance: WorkerChance) -> Iterator[Remedy]:
    priority = fleet.front.priority(chance.worker_id) + 1
    if priority <= HIGHEST:
        yield Remedy(
            code="raise_priority",
            text=f"submit it with priority {priority} instead of {-job['nice']} to go first",
            changes={"priority": priority},
        )
    yield Remedy(code="wait", text=f"wait: {chance.worker} {chance.text}", worker=chance.worker)


def _room(candidate: Candidate) -> Iterator[Remedy]:
    if not candidate.takes:
        return
    name = candidate.row["name"]
    text = f"wait until enough jobs on {name} have ended"
    yield Remedy(code="wait_for_room", text=text, worker=name)
    yield from _less(for_free(candidate), candidate)


def _secrets(candidate: Candidate) -> Iterator[Remedy]:
    """Suggest secrets, if the worker lacks nothing else."""
    lacking = [asked.name for asked in candidate.asked if not asked.met]
    names = [name.removeprefix(LABEL + SECRET) for name in lacking]
    if lacking and all(name.startswith(LABEL + SECRET) for name in lacking):
        worker = candidate.row["name"]
        files = "a file of this name" if len(names) == 1 else "files of these names"
        text = (
            f"write the secret{'s' * (len(names) > 1)} {names_text(names)} to {files} in the"
            f" folder of secrets on {worker} (FORGE_SECRETS_DIR of it, or of its `forge up`)"
        )
        yield Remedy(code="add_secret", text=text, worker=worker)


def _less(changes: Changes | None, candidate: Candidate) -> Iterator[Remedy]:
    if not changes:
        return
    name = candidate.row["name"]
    when = "" if free_now(changes, candidate) else ", once enough of it is free"
    text = f"{in_words(candidate.wants, changes)}: then {name} can run it{when}"
    yield Remedy(code="ask_less", text=text, changes=changes, worker=name)


def back(candidate: Candidate, chance: WorkerChance) -> Remedy:
    """Return what makes a worker take jobs again."""
    name = chance.worker
    match chance.chance:
        case Chance.DRAINING if not candidate.leaves:
            command = f"forge worker drain {quote(name)} --undo"
            return _worker("undrain", f"let {name} take jobs again", name, command)
        case Chance.CONSTRAINED:
            return _worker("relieve", f"check {name}, which {chance.text}", name)
        case Chance.NEVER_CAME:
            text = f"start the worker {name}, which has never connected, to learn what it has"
            return _worker("start_worker", text, name)
        case _:
            return _worker("start_worker", f"start the worker {name} again", name)


def _worker(code: str, text: str, name: str, command: str | None = None) -> Remedy:
    return Remedy(code=code, text=text, worker=name, command=command)


def _image(fleet: FleetChances) -> Iterator[Remedy]:
    """Suggest an image if some worker runs only jobs that have one."""
    for candidate in fleet.candidates.values():
        for asked in candidate.asked:
            if asked.name != LABEL + RUNS or asked.met or RUNS_PROJECTS not in str(asked.wanted):
                continue
            if RUNS_IMAGES in str(asked.has):
                name = candidate.row["name"]
                text = f"name an image with --image, or start {name} with --default-image"
                yield Remedy(code="name_image", text=text, worker=name)
                return


def _added(job: Row, fleet: FleetChances) -> Iterator[Remedy]:
    """Suggest another worker if none that takes jobs could run the job."""
    if any(chance.chance in SERVES and chance.worker_id in fleet.able for chance in fleet.chances):
        return
    wanted = [wish(asked) for asked in to_name(job, fleet)]
    with_it = f" with {', '.join(wanted)}" if wanted else ""
    which = "another" if fleet.chances else "a"
    yield Remedy(code="add_worker", text=f"start {which} worker{with_it}")


def to_name(job: Row, fleet: FleetChances) -> list[Requirement]:
    """Return the requirements to name to somebody who starts a worker for the job."""
    ones = list(fleet.candidates.values())
    lacked = {asked.name for candidate in ones for asked in candidate.asked if not asked.met}
    return [
        asked
        for asked in (ones[0].asked if ones else wishes(job))
        if asked.name not in PLAIN or asked.name in lacked
    ]
