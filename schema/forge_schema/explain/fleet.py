"""Compare the fleet with one job: each worker's chance, the best match first."""

from dataclasses import dataclass

from forge_schema.database.pool import Database, Row
from forge_schema.explain.fit import Room, devices, offered, requirements, room
from forge_schema.explain.front import Before, Front
from forge_schema.explain.text import ADDRESS, GANGS_ALLOWED, LABEL, SIZES, lack, wish
from forge_schema.model.explanation import Chance, Requirement, WorkerChance
from forge_schema.model.quantities import MIB, counted, duration_text, size_text
from forge_schema.model.states import Command, WorkerKind, WorkerStatus
from forge_schema.queue.lane import Lane, read

# In a larger fleet, workers that could run the job come first.
MOST_WORKERS = 1000
NEAREST = {
    Chance.STARTS: 0.0,
    Chance.BEHIND: 0.1,
    Chance.RESERVED: 0.2,
    Chance.AVOIDED: 0.25,
    Chance.BUSY: 0.3,
    Chance.CONSTRAINED: 0.5,
    Chance.DRAINING: 1.0,
    Chance.STOPPING: 2.0,
    Chance.OFFLINE: 2.0,
    Chance.NEVER_CAME: 3.0,
}
# Of workers that take jobs.
SERVES = {Chance.STARTS, Chance.BEHIND, Chance.RESERVED, Chance.BUSY}
# In the order of `forge_parts`.
PARTS = ("image", "environment", "bundle")
# Why a worker takes no jobs although no admin asked for that.
UNASKED = {WorkerStatus.DRAINING: Chance.DRAINING, WorkerStatus.CONSTRAINED: Chance.CONSTRAINED}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker, its free resources, and why it takes no jobs, if that is so.

    `wants` is the job with each share replaced by what this worker would lend.
    """

    row: Row
    wants: Row
    room: Room
    away: Chance | None
    asked: list[Requirement]

    @property
    def fits(self) -> bool:
        """Whether it can run the job when idle."""
        return bool(self.row["fits"])

    @property
    def lacks(self) -> list[Requirement]:
        """What it is known to lack: of one that never connected, only labels set by an admin."""
        unmet = [asked for asked in self.asked if not asked.met]
        if self.away is not Chance.NEVER_CAME:
            return unmet
        fixed = {LABEL + name for name in self.row["labels"]}
        return [asked for asked in unmet if asked.name in fixed]

    @property
    def leaves(self) -> bool:
        """Whether it drains on its own, without an admin's request."""
        return self.away is Chance.DRAINING and self.row["command"] is None

    @property
    def takes(self) -> bool:
        """Whether it takes jobs now. An ephemeral worker takes only one."""
        last = self.row["kind"] == WorkerKind.EPHEMERAL and self.room.leases
        return self.away is None and not last

    def has_room(self, lane: Lane | None = None) -> bool:
        """Tell whether the job, or one of another lane, fits into the free resources."""
        lane = lane or read(self.wants)
        return any(lane.fits(free) > 0 for free in self.room.choices())


@dataclass(frozen=True, slots=True)
class FleetChances:
    """Every worker's chance, best first; `able` has the ids of those that could take the job."""

    chances: list[WorkerChance]
    candidates: dict[int, Candidate]
    front: Front
    able: list[int]
    in_all: int


def fleet(database: Database, job: Row, *, patience_s: float) -> FleetChances:
    """Return how each worker's next claim treats a job that no limit holds back."""
    checked = candidates(database, job)
    able = [candidate.row["id"] for candidate in checked if candidate.fits and candidate.takes]
    front = Front(database, job, able, patience_s=patience_s)
    chances = [
        _chance(candidate, front if candidate.takes and candidate.has_room() else None)
        for candidate in checked
    ]
    by_id = {candidate.row["id"]: candidate for candidate in checked}
    chances.sort(key=lambda chance: _distance(chance, by_id[chance.worker_id].row))
    return FleetChances(chances, by_id, front, able, checked[0].row["in_all"] if checked else 0)


def candidates(database: Database, job: Row, *, worker_id: int | None = None) -> list[Candidate]:
    """Return all workers, or one, compared with a job's requirements."""
    rows = database.rows(
        "explain_workers",
        again=True,
        shape_id=job["shape_id"],
        parts=job["parts"],
        job_id=job["job_id"],
        worker_id=worker_id,
        count=MOST_WORKERS,
    )
    leased = {row["worker_id"]: row for row in database.rows("explain_leased", again=True)}
    busy = devices(leased.values())
    return [
        _candidate(job, row, offered(room(row, leased.get(row["id"]), busy), row["offers"]))
        for row in rows
    ]


def _candidate(job: Row, row: Row, space: Room) -> Candidate:
    wants = {**job, "cpus": row["lent_cpus"], "memory_mb": row["lent_memory_mb"]}
    return Candidate(row, wants, space, _away(row), requirements(wants, row, space))


def _away(row: Row) -> Chance | None:
    if row["never_came"]:
        return Chance.NEVER_CAME
    if row["status"] == WorkerStatus.OFFLINE:
        return Chance.OFFLINE
    if row["command"] is not None:
        return Chance.STOPPING if row["command"] == Command.STOP else Chance.DRAINING
    if away := UNASKED.get(row["status"]):
        return away
    if row["silent"]:
        return Chance.OFFLINE
    return Chance.CONSTRAINED if _unreached(row) or row["rests_s"] else None


def _unreached(row: Row) -> bool:
    """Tell whether a gang may not have the worker, because others could not reach it."""
    return (row["gangs_after_s"] or 0.0) > 0


def _chance(candidate: Candidate, front: Front | None) -> WorkerChance:
    before = (
        front.of(
            candidate.row["id"],
            read(candidate.wants),
            candidate.room.choices(),
            candidate.row["draft"],
        )
        if front and candidate.fits
        else Before(Chance.BUSY)
    )
    # A worker that never registered has unknown resources.
    unfit = bool(candidate.lacks) if candidate.away is Chance.NEVER_CAME else not candidate.fits
    chance = Chance.UNFIT if unfit else (candidate.away or before.chance)
    if chance is Chance.STARTS and _avoided_s(candidate) > 0:
        chance = Chance.AVOIDED
    lacking = [asked.name for asked in candidate.lacks] if unfit else []
    return WorkerChance(
        worker_id=candidate.row["id"],
        worker=candidate.row["name"],
        chance=chance,
        text=_text(candidate, chance, before.ahead),
        available=candidate.away is None,
        requirements=[] if candidate.away is Chance.NEVER_CAME else candidate.asked,
        lacking=lacking,
        ahead=before.ahead if chance in {Chance.STARTS, Chance.BEHIND} else None,
        leases=candidate.room.leases,
        silent_s=candidate.row["silent_s"],
        preference=candidate.row["preference"],
        speed=candidate.row["speed"],
        price_per_hour=candidate.row["price_per_hour"],
    )


def _text(candidate: Candidate, chance: Chance, ahead: int) -> str:
    silent = duration_text(candidate.row["silent_s"])
    return {
        Chance.STARTS: "is free for it"
        if candidate.wants["nodes"] > 1
        else f"takes it with its next claim{_preferred(candidate)}",
        Chance.BEHIND: f"takes {counted(ahead, 'other job')} first",
        Chance.RESERVED: "reserves its free resources for a job ahead of this one"
        + _lets(candidate),
        Chance.AVOIDED: _avoided(candidate),
        Chance.BUSY: _too_little(candidate),
        Chance.CONSTRAINED: _constrained(candidate.row),
        Chance.DRAINING: _draining(candidate),
        Chance.STOPPING: "is stopping: it takes no more jobs",
        Chance.OFFLINE: f"is {_gone(candidate.row)}: last heard from {silent} ago",
        Chance.NEVER_CAME: "never connected",
        Chance.UNFIT: _unfit(candidate.lacks),
    }[chance]


def _avoided_s(candidate: Candidate) -> float:
    """Return for how many seconds the worker leaves the job to others."""
    return max(0.0, candidate.row["avoided_s"] or 0.0)


def _avoided(candidate: Candidate) -> str:
    pause = duration_text(_avoided_s(candidate))
    if candidate.row["leaves"]:
        return f"leaves it to spot machines for another {pause}"
    why = "since it failed here or had too little memory"
    return f"leaves it to other workers for another {pause}, {why}"


def _unfit(unmet: list[Requirement]) -> str:
    lacking = "; ".join(lack(asked) for asked in unmet if asked.name != ADDRESS)
    alone = f"is not set up for multi-node jobs (start it with {GANGS_ALLOWED})"
    reasons = [alone] if any(asked.name == ADDRESS for asked in unmet) else []
    return "; ".join([*reasons, *([f"lacks {lacking}"] if lacking else [])])


def _lets(candidate: Candidate) -> str:
    """Tell which jobs may use the room that the worker keeps for a gang."""
    short_s = (candidate.row["draft"] or {}).get("short_s") or 0
    within = duration_text(short_s)
    may = f"the next jobs in line may pass if their --timeout ends them within {within}"
    return f"; {may}" if short_s > 0 else ""


def _preferred(candidate: Candidate) -> str:
    """Tell what sets the worker apart from others that could take the job now."""
    if candidate.row["last_resort"]:
        return ", unless a remote worker does first"
    price = candidate.row["price_per_hour"]
    costs = f"; it costs {price:g} an hour" if price else ""
    named = zip(PARTS, candidate.wants["parts"] or [], strict=False)
    warm = candidate.row["warm"]
    has = [name for name, part in named if part is not None and part in warm]
    fetched = (candidate.wants["parts"] or [])[len(PARTS) :]
    has += ["inputs"] * (bool(fetched) and set(fetched) <= set(warm))
    return costs + (f"; it has the job's {' and '.join(has)}" if has else "")


def _gone(row: Row) -> str:
    return "offline" if row["status"] == WorkerStatus.OFFLINE else "silent"


def _constrained(row: Row) -> str:
    if row["rests_s"] and row["status"] != WorkerStatus.CONSTRAINED:
        pause = duration_text(row["rests_s"])
        return f"is suspected, and tries the next job in {pause}: {row['suspected_for']}"
    if _unreached(row) and row["status"] != WorkerStatus.CONSTRAINED:
        pause = duration_text(row["gangs_after_s"])
        where = f"{row['address']} (check --advertise-address and its firewall)"
        return f"takes no part in gangs for another {pause}: nobody could reach {where}"
    return f"takes no jobs now: {row['constrained'] or 'past its limits'}"


def _draining(candidate: Candidate) -> str:
    if candidate.leaves:
        return "is draining, as asked on its machine: it takes no more jobs"
    return "is draining: it takes no more jobs"


def _too_little(candidate: Candidate) -> str:
    if not candidate.takes:
        return "runs a single job, which it already has"
    short = [
        f"{wish(asked)}, free {_free(asked)}"
        for asked in candidate.asked
        if isinstance(asked.free, int | float)
        and isinstance(asked.wanted, int | float)
        and asked.free < asked.wanted
    ]
    runs = counted(candidate.room.leases, "job")
    # With several kinds of GPU, no single number may explain why the job does not fit.
    return f"is busy with {runs}: wanted " + "; ".join(short) if short else f"is busy with {runs}"


def _free(asked: Requirement) -> str:
    free = asked.free if isinstance(asked.free, int | float) else 0
    return size_text(free * MIB) if asked.name in SIZES else f"{free:g}"


def _distance(chance: WorkerChance, row: Row) -> tuple[float, float, float, float, int, str]:
    away = 0.0 if chance.available else 1.0
    obstacles = len(chance.lacking) + NEAREST.get(chance.chance, away)
    dear = preference = 0.0
    if chance.chance is Chance.STARTS:
        # Null goes first, and a local worker only starts what no other one does.
        dear = (1e9 if row["last_resort"] else 0.0) + (-1e6 if row["dear"] is None else row["dear"])
        preference = chance.preference + chance.speed
    return obstacles, _missing(chance), dear, -preference, chance.ahead or 0, chance.worker


def _missing(chance: WorkerChance) -> float:
    """Return the sum of the missing or busy fractions of what is wanted."""
    return sum(
        max(0.0, 1 - have / asked.wanted)
        for asked in chance.requirements
        for have in (asked.free if asked.free is not None else asked.has,)
        if isinstance(asked.wanted, int | float) and isinstance(have, int | float) and asked.wanted
    )
