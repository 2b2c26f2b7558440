"""The expected rows of the reporting views, computed from the tables by simple Python."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, date, datetime, time, timedelta
from fnmatch import fnmatch
from math import isclose
from typing import TYPE_CHECKING, Any

from forge_schema.read.report_definitions import REPORTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Row = dict[str, Any]
TABLES = (
    "attempt", "lease", "ready", "job", "outcome", "lane", "shape", "worker", "former_worker",
    "queue", "owner_quota", "event", "log_chunk", "checkpoint", "metric",
)  # fmt: skip
TAKEN = {"preempted", "drained", "worker_lost", "gpu_fault", "storage_failed", "start_failed"}
NO_FAILURE = {"succeeded", "cancelled", "preempted", "drained", "run_ended"}
DAY = timedelta(days=1)


def day_of(moment: datetime) -> date:
    return moment.astimezone(UTC).date()


def midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def days(first: datetime, last: datetime) -> Iterable[tuple[date, float]]:
    """Yield each day between two moments, with the seconds of the interval on that day."""
    day = day_of(first)
    while day <= day_of(last):
        seconds = min(last, midnight(day + DAY)) - max(first, midnight(day))
        yield day, seconds.total_seconds()
        day += DAY


def over(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def total(rows: Iterable[Row], name: str) -> float | None:
    known = [row[name] for row in rows if row[name] is not None]
    return sum(known) if known else None


def percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


class Sums:
    """The tables as they are now; one method per view yields its individual parts."""

    def __init__(self, rows: Callable[[str], list[Row]], now: datetime) -> None:
        self.now = now
        self.tables = {name: rows(f"SELECT * FROM {name}") for name in TABLES}
        self.jobs = {job["id"]: job for job in self.tables["job"]}
        self.lanes = {lane["id"]: lane for lane in self.tables["lane"]}
        self.shapes = {shape["id"]: shape for shape in self.tables["shape"]}
        known = (*self.tables["worker"], *self.tables["former_worker"])
        self.names = {worker["id"]: worker["name"] for worker in known}
        self.outcomes = {row["job_id"]: row for row in self.tables["outcome"]}

    def of(self, held: Row) -> Row:
        """Return the owner and place of an attempt, a lease or a ready job."""
        lane = self.lanes[held["lane_id"]]
        return {
            **{name: lane[name] for name in ("owner", "queue", "shape_id")},
            "name": self.jobs[held["job_id"]]["name"],
            "worker": self.names.get(held.get("worker_id")),
        }

    def useful_until(self, attempt: Row) -> datetime:
        until: datetime = attempt["claimed_at"]
        if attempt["reason"] == "succeeded":
            until = attempt["finished_at"]
        elif attempt["reason"] in TAKEN | {"run_ended"} and attempt["checkpoint_at"]:
            # The run's last checkpoint may be later than the end of one of its ranks.
            until = min(attempt["checkpoint_at"], attempt["finished_at"])
        return until

    def attempts(self) -> list[Row]:
        found = []
        for attempt in self.tables["attempt"]:
            held = (attempt["finished_at"] - attempt["claimed_at"]).total_seconds()
            kept = (self.useful_until(attempt) - attempt["claimed_at"]).total_seconds()
            day = day_of(attempt["finished_at"])
            where = self.of(attempt)
            found.append(
                {**attempt, **where, "day": day, "useful": kept / (held or 1), "held_s": held}
            )
        return found

    def claims(self) -> list[Row]:
        return [
            {
                **{name: row[name] for name in ("job_id", "attempt", "ready_at", "claimed_at")},
                **{name: self.of(row)[name] for name in ("owner", "queue", "shape_id")},
                "day": day_of(row["claimed_at"]),
                "waited_s": (row["claimed_at"] - row["ready_at"]).total_seconds(),
            }
            for row in (*self.tables["attempt"], *self.tables["lease"])
            if row["rank"] == 0
        ]

    def failed_attempts(self) -> list[Row]:
        names = ("job_id", "attempt", "rank", "reason", "exit_code", "detail", "worker_id")
        return [
            {name: row[name] for name in (*names, "name", "owner", "queue", "worker")}
            | {"gpu": gpu, "finished_at": row["finished_at"], "day": row["day"]}
            for row in self.attempts()
            if row["reason"] not in NO_FAILURE
            for gpu in row["devices"] or [None]
        ]

    def lost_time(self) -> list[Row]:
        return [self._lost(row) for row in self.attempts() if row["reason"] in TAKEN]

    def _lost(self, row: Row) -> Row:
        later = [
            other
            for other in (*self.tables["attempt"], *self.tables["lease"])
            if (other["job_id"], other["rank"]) == (row["job_id"], row["rank"])
            and other["attempt"] > row["attempt"]
        ]
        following = min(later, key=lambda other: other["attempt"], default=None)
        kept = row["checkpoint_at"] or row["started_at"] or row["finished_at"]
        again = (row["finished_at"] - kept).total_seconds()
        waited = restored = None
        if following:
            waited = (following["claimed_at"] - row["finished_at"]).total_seconds()
            if following["started_at"]:
                restored = (following["started_at"] - following["claimed_at"]).total_seconds()
        names = ("job_id", "name", "owner", "queue", "attempt", "rank", "worker_id", "worker")
        times = ("reason", "detail", "started_at", "checkpoint_at", "finished_at", "day")
        return {name: row[name] for name in (*names, *times)} | {
            "next_attempt": following and following["attempt"],
            "again_s": again,
            "waited_s": waited,
            "restored_s": restored,
            "lost_s": again + (waited or 0) + (restored or 0),
            "again_gpu_s": again * len(row["devices"] or ()),
            "displaced_by": self._displaced_by(row),
        }

    def _displaced_by(self, row: Row) -> int | None:
        asked = [
            event["detail"]["by"]
            for event in self.tables["event"]
            if (event["action"], event["job_id"]) == ("displaced", row["job_id"])
            and event["detail"]["attempt"] == row["attempt"]
        ]
        return asked[0] if asked and row["reason"] == "preempted" else None

    def preemptions(self) -> list[Row]:
        return [row for row in self.lost_time() if row["reason"] in {"preempted", "drained"}]

    def sla(self) -> list[Row]:
        first = {
            row["job_id"]: row["claimed_at"]
            for row in (*self.tables["attempt"], *self.tables["lease"])
            if (row["attempt"], row["rank"]) == (1, 0)
        }
        found = []
        for job in self.tables["job"]:
            due = max(job["submitted_at"], job["run_at"] or job["submitted_at"])
            begun = first.get(job["id"])
            state = self.outcomes.get(job["id"], {}).get("state")
            lane = self.lanes[job["lane_id"]]
            if begun or (state is None and due <= self.now):
                waited = (begun - due).total_seconds() if begun else None
                where = {name: lane[name] for name in ("owner", "queue")}
                day = day_of(job["submitted_at"])
                found.append({**where, "day": day, "waited_s": waited, "state": state})
        return found

    def worker_utilisation(self) -> list[Row]:
        return [*self._held(), *self._leased(), *self._there()]

    def _part(self, worker_id: int, day: date, **amounts: float) -> Row:
        names = ("attempts", "leased_s", "running_s", "useful_s", "there_s", "gpu_s", "gpu_there_s")
        where = {"worker_id": worker_id, "worker": self.names.get(worker_id), "day": day}
        return {**where, **dict.fromkeys(names, 0), **amounts}

    def _held(self) -> Iterable[Row]:
        for row in self.attempts():
            useful = dict(days(row["claimed_at"], self.useful_until(row)))
            for day, seconds in days(row["claimed_at"], row["finished_at"]):
                yield self._part(
                    row["worker_id"],
                    day,
                    attempts=int(day == row["day"]),
                    leased_s=seconds,
                    useful_s=useful.get(day, 0),
                    gpu_s=row["gpu_seconds"] * seconds / (row["held_s"] or 1),
                )

    def _leased(self) -> Iterable[Row]:
        for lease in self.tables["lease"]:
            for day, seconds in days(lease["claimed_at"], self.now):
                gpu_s = seconds * len(lease["devices"])
                amounts = {"leased_s": seconds, "running_s": seconds, "gpu_s": gpu_s}
                yield self._part(lease["worker_id"], day, **amounts)

    def _there(self) -> Iterable[Row]:
        for worker in self.tables["worker"]:
            if worker["connected_at"]:
                until = worker["last_seen_at"] if worker["status"] == "offline" else self.now
                for day, seconds in days(worker["registered_at"], until):
                    gpus = {"gpu_there_s": seconds * len(worker["gpus"])}
                    yield self._part(worker["id"], day, there_s=seconds, **gpus)

    def stuck(self) -> list[Row]:
        found = [*self._waiting(), *self._running()]
        return [
            {**where, "seconds": (self.now - where["since"]).total_seconds()} for where in found
        ]

    def _stuck(self, kind: str, row: Row, since: datetime) -> Row:
        worker_id = row.get("worker_id")
        where = {"kind": kind, "job_id": row["job_id"], "worker_id": worker_id, "since": since}
        return {**where, **self.of(row)}

    def _waiting(self) -> Iterable[Row]:
        full = {queue["name"] for queue in self.tables["queue"] if queue["max_jobs"] == 0}
        for row in self.tables["ready"]:
            lane = self.lanes[row["lane_id"]]
            fitting = [w for w in self.tables["worker"] if fits(self.shapes[lane["shape_id"]], w)]
            if not fitting:
                yield self._stuck("unclaimable", row, row["ready_at"])
            elif (
                any(self._idle(worker) for worker in fitting)
                and not lane["paused"]
                and lane["queue"] not in full
                and self.now - row["ready_at"] > timedelta(minutes=10)
            ):
                yield self._stuck("unattended", row, row["ready_at"])

    def _idle(self, worker: Row) -> bool:
        holders = {lease["worker_id"] for lease in self.tables["lease"]}
        heard = self.now - worker["last_seen_at"] < timedelta(minutes=2)
        return heard and worker["status"] in {"idle", "busy"} and worker["id"] not in holders

    def _running(self) -> Iterable[Row]:
        for lease in self.tables["lease"]:
            signs = [
                row["created_at"]
                for table in ("log_chunk", "checkpoint")
                for row in self.tables[table]
                if (row["job_id"], row["token"]) == (lease["job_id"], lease["token"])
                and row.get("rank", lease["rank"]) == lease["rank"]
            ]
            if lease["started_at"]:
                last = max([lease["started_at"], *signs])
                if self.now - last > timedelta(minutes=30):
                    yield self._stuck("stalled", lease, last)
            if self.now - lease["expires_at"] > timedelta(minutes=1):
                yield self._stuck("expired", lease, lease["expires_at"])


def fits(shape: Row, worker: Row) -> bool:
    """Tell whether a worker fits one of the few shapes that these tests request."""
    named = [gpu for gpu in worker["gpus"] if fnmatch(gpu["name"], shape["gpu_model"])]
    labels = all(
        fnmatch(worker["labels"].get(name, ""), glob) for name, glob in shape["labels"].items()
    )
    return labels and shape["gpus"] <= len(named) and shape["cpus"] <= worker["cpus"]


def waits(rows: Sequence[Row]) -> Row:
    waited = [row["waited_s"] for row in rows]
    return {
        "claims": len(rows),
        "mean_s": sum(waited) / len(waited),
        "median_s": percentile(waited, 0.5),
        "p95_s": percentile(waited, 0.95),
        "max_s": max(waited),
    }


def gpu_hours(rows: Sequence[Row]) -> Row:
    hours = sum(row["gpu_seconds"] for row in rows) / 3600
    useful = sum(row["gpu_seconds"] * row["useful"] for row in rows) / 3600
    return {
        "attempts": sum(row["rank"] == 0 for row in rows),
        "gpu_hours": hours,
        "useful_gpu_hours": useful,
        "wasted_gpu_hours": hours - useful,
        "goodput": over(useful, hours),
        "cpu_hours": over(total(rows, "cpu_seconds"), 3600),
    }


def cost(rows: Sequence[Row]) -> Row:
    priced = [row for row in rows if row["cost"] is not None]
    spent = total(priced, "cost")
    useful = sum(row["cost"] * row["useful"] for row in priced) if priced else None
    return {
        "jobs": len({row["job_id"] for row in rows}),
        "attempts": sum(row["rank"] == 0 for row in rows),
        "unpriced": len(rows) - len(priced),
        "cost": spent,
        "useful_cost": useful,
        "wasted_cost": None if spent is None or useful is None else spent - useful,
        "goodput": over(useful, spent),
    }


def energy(rows: Sequence[Row]) -> Row:
    measured = [row for row in rows if row["energy_j"] is not None]
    hours = sum(row["gpu_seconds"] for row in measured) / 3600 if measured else None
    joules = total(measured, "energy_j")
    useful = sum(row["energy_j"] * row["useful"] for row in measured)
    return {
        "attempts": sum(row["rank"] == 0 for row in rows),
        "unmeasured": len(rows) - len(measured),
        "energy_kwh": None if joules is None else joules / 3.6e6,
        "useful_kwh": useful / 3.6e6 if measured else None,
        "measured_gpu_hours": hours,
        "watts_per_gpu": None if joules is None else over(joules / 3600, hours),
    }


def failures(rows: Sequence[Row]) -> Row:
    return {
        "failures": len({(row["job_id"], row["attempt"]) for row in rows}),
        "jobs": len({row["job_id"] for row in rows}),
        "last_at": max(row["finished_at"] for row in rows),
    }


def preemptions(rows: Sequence[Row]) -> Row:
    def counted(column: str) -> int:
        return len({(r["job_id"], r["attempt"]) for r in rows if r[column] is not None})

    spent = ("again_s", "waited_s", "restored_s", "lost_s")
    return {
        "preemptions": counted("job_id"),
        "saved": counted("checkpoint_at"),
        "resumed": counted("next_attempt"),
        **{name: total(rows, name) for name in spent},
    }


def sla(rows: Sequence[Row]) -> Row:
    waited = [row["waited_s"] for row in rows if row["waited_s"] is not None]
    limits = {"1m": 60, "5m": 300, "60m": 3600}
    started = {name: sum(w <= limit for w in waited) for name, limit in limits.items()}
    ended = [row["state"] for row in rows if row["state"] not in {None, "cancelled"}]
    return {
        "jobs": len(rows),
        "waiting": len(rows) - len(waited),
        **{f"started_{name}": count for name, count in started.items()},
        **{f"share_{name}": count / len(rows) for name, count in started.items()},
        "ended": len(ended),
        "succeeded": ended.count("succeeded"),
        "share_succeeded": over(ended.count("succeeded"), len(ended)),
    }


def utilisation(rows: Sequence[Row]) -> Row:
    names = ("attempts", "leased_s", "running_s", "useful_s", "there_s", "gpu_s", "gpu_there_s")
    sums = {name: sum(row[name] for row in rows) for name in names}
    sums["useful_share"] = over(sums["useful_s"], sums["leased_s"] - sums["running_s"])
    sums["gpu_share"] = over(sums["gpu_s"], sums["gpu_there_s"])
    return sums


def stuck(rows: Sequence[Row]) -> Row:
    return {
        "jobs": len({row["job_id"] for row in rows}),
        "since": min(row["since"] for row in rows),
        "seconds": max(row["seconds"] for row in rows),
    }


GROUPED: dict[str, tuple[Callable[[Sums], list[Row]], Callable[[Sequence[Row]], Row]]] = {
    "claims": (Sums.claims, waits),
    "cost": (Sums.attempts, cost),
    "energy": (Sums.attempts, energy),
    "failed_attempts": (Sums.failed_attempts, failures),
    "failures": (Sums.failed_attempts, failures),
    "gpu_hours": (Sums.attempts, gpu_hours),
    "preemptions": (Sums.preemptions, preemptions),
    "queue_wait": (Sums.claims, waits),
    "sla": (Sums.sla, sla),
    "stuck": (Sums.stuck, stuck),
    "worker_utilisation": (Sums.worker_utilisation, utilisation),
}
SINGLE: dict[str, Callable[[Sums], list[Row]]] = {
    "claims": Sums.claims,
    "failed_attempts": Sums.failed_attempts,
    "lost_time": Sums.lost_time,
    "stuck": Sums.stuck,
}
# Views whose rows are already groups.
VIEWS = [name for name in GROUPED if name not in SINGLE]
ROW_KEYS = ("job_id", "attempt", "rank", "gpu", "kind", "worker_id", "since")


def grouped(
    pieces: list[Row], by: Sequence[str], sums: Callable[[Sequence[Row]], Row]
) -> list[Row]:
    """Return one row for each group of parts."""
    groups: defaultdict[tuple[object, ...], list[Row]] = defaultdict(list)
    for piece in pieces:
        groups[tuple(piece[column] for column in by)].append(piece)
    return [{**dict(zip(by, key, strict=True)), **sums(rows)} for key, rows in groups.items()]


def computed(sums: Sums, name: str, columns: Sequence[str]) -> tuple[list[Row], list[str]]:
    """Return a view's rows with these columns, and the columns that identify them."""
    if name in SINGLE:
        return SINGLE[name](sums), [key for key in ROW_KEYS if key in columns]
    pieces, made = GROUPED[name]
    keys = [key for key in REPORTS[name].keys if key in columns]
    rows = grouped(pieces(sums), keys, made)
    return [{column: row[column] for column in columns} for row in rows], keys


def difference(found: Sequence[Row], wanted: Sequence[Row], keys: Sequence[str]) -> str | None:
    """Describe the first difference between rows, with a tolerance for numbers."""

    def place(row: Row) -> list[str]:
        return [str(row[key]) for key in keys]

    if len(found) != len(wanted):
        return f"{len(found)} rows in place of {len(wanted)}"
    pairs = zip(sorted(found, key=place), sorted(wanted, key=place), strict=True)
    for one, other in pairs:
        if one.keys() != other.keys():
            return f"columns {list(one)} in place of {list(other)}"
        for name, value in other.items():
            if not alike(one[name], value):
                return f"{name}: {one} in place of {other}"
    return None


def alike(one: object, other: object) -> bool:
    if isinstance(one, int | float) and isinstance(other, float):
        return isclose(one, other, rel_tol=1e-6, abs_tol=1e-6)
    return one == other
