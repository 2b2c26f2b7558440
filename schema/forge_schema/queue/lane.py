"""Lanes as a worker sees them: their jobs' needs, their owners, and which one comes first."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush, heapreplace
from threading import Lock

from forge_schema.database.pool import Row
from forge_schema.model.worker import Capacity, is_model

# `nice` is a smallint.
FIRST = (-32768, 0)
LAST = 32767
# Watermarks kept for each lane.
REMEMBERED = 8
# How many lanes a look for one job sees, but for the first look at many.
SHOWN = 12


@dataclass(slots=True)
class Lane:
    """A lane's needs, its owner's share, its first job, and its watermarks.

    A share is what the owner's running jobs hold by the owner's weight, corrected by the GPU time
    that the owner has had (`forge_shares`): the least goes first. Each job holds its GPUs, or 1 if
    it has none. `nice` and `job_id` are those of its first job
    when last seen; None if it had none that may be claimed. `passed_at` is when a worker first
    passed that job by, on this process's clock.

    A watermark is the last job that this worker claimed of one `nice`. It is a hint that lets the
    claim skip the dead rows in front, which Postgres cannot remove while an old snapshot lives. A
    job that appears below it waits for the next refresh.
    """

    id: int
    needs: Capacity
    limited: bool
    owner: str
    weight: float
    share: float
    nice: int | None = None
    shape_id: int = 0
    job_id: int | None = None
    passed_at: float | None = None
    watermarks: dict[int, int] = field(default_factory=dict)

    @property
    def step(self) -> float:
        """What one more job adds to the owner's share."""
        return max(self.needs.gpus, 1) / self.weight

    def fits(self, free: Capacity) -> int:
        """Return how many jobs of this lane fit into what is free."""
        return fitting(self.needs, free)

    def lent(self, cpus: float, memory_mb: int) -> "Lane":
        """Return the lane as seen by a worker that lends this much to jobs that ask for a share."""
        return replace(self, needs=replace(self.needs, cpus=cpus, memory_mb=memory_mb))

    def seen(self, needs: Capacity, watermarks: dict[int, int]) -> "Lane":
        """Return the lane as a worker sees it. A claim does this for each lane that it looks at."""
        # In a seventh of the time of `replace`.
        return Lane(
            self.id,
            needs,
            self.limited,
            self.owner,
            self.weight,
            self.share,
            self.nice,
            self.shape_id,
            self.job_id,
            self.passed_at,
            watermarks,
        )

    def ranges(self) -> Iterator["Range"]:
        """Yield the ranges of `ready` above the watermarks."""
        after = FIRST
        for nice, job_id in sorted(self.watermarks.items()):
            yield self, after, nice - 1
            after = (nice, job_id)
        yield self, after, LAST


def raise_watermark(watermarks: dict[int, int], nice: int, job_id: int) -> None:
    """Remember how far a worker emptied a lane."""
    watermarks.pop(nice, None)
    watermarks[nice] = job_id
    if len(watermarks) > REMEMBERED:
        del watermarks[next(iter(watermarks))]


def fitting(needs: Capacity, free: Capacity) -> int:
    """Return how many jobs with these needs fit into what is free."""
    if needs.gpus and not suits(needs, free):
        return 0
    pairs = (
        (free.cpus, needs.cpus),
        (free.memory_mb, needs.memory_mb),
        (free.disk_mb, needs.disk_mb),
        (free.gpus, needs.gpus),
    )
    # Ten tenths of a CPU are one CPU, which // would miss.
    return min(int(have / need + 1e-9) for have, need in pairs if need)


def suits(needs: Capacity, free: Capacity) -> bool:
    """Tell whether the GPUs of `free` are of the kind that is needed."""
    return not free.gpu_model or (
        free.vram_mb >= needs.vram_mb and is_model(needs.gpu_model, free.gpu_model)
    )


# A lane, the `(nice, job_id)` after which to look, and the last `nice` to look at.
Range = tuple[Lane, tuple[int, int], int]


def read(row: Row) -> Lane:
    """Return a lane as `match` names it."""
    return Lane(
        row["id"],
        needed(row),
        row["limited"],
        row["owner"],
        row["weight"],
        row["share"],
        row["nice"],
        row["shape_id"],
    )


def needed(row: Row) -> Capacity:
    """Return the needs of a shape's jobs."""
    return Capacity(
        row["cpus"], row["memory_mb"], row["disk_mb"], row["gpus"], row["gpu_model"], row["vram_mb"]
    )


Place = tuple[int, float, int, Lane]


class LaneOrder:
    """The lanes that have jobs, in the order in which these are to be claimed.

    Lanes of one shape share a heap. A place that is no longer that of its lane is put right
    when it comes first.
    """

    def __init__(self, lanes: Iterable[Lane]) -> None:
        self._heaps: dict[int, list[Place]] = {}
        for lane in lanes:
            self._heaps.setdefault(lane.shape_id, []).extend(_place(lane))
        for heap in self._heaps.values():
            heapify(heap)

    def first(self, most: int, shapes: Iterable[int], without: Collection[int]) -> list[Lane]:
        """Return the first lanes of some shapes, other than `without`."""
        heaps = [heap for shape in shapes if _tidy(heap := self._heaps.get(shape, []))]
        seen: dict[int, tuple[list[Place], Place]] = {}
        lanes: list[Lane] = []
        while heaps and len(lanes) < most:
            heap = min(heaps, key=lambda heap: heap[0])
            place = heappop(heap)
            lane = place[3]
            if lane.id not in seen and lane.id not in without:
                lanes.append(lane)
            # A lane that moved up twice has two equal places.
            seen[lane.id] = heap, place
            heaps = heaps if _tidy(heap) else [h for h in heaps if h]
        for heap, place in seen.values():
            heappush(heap, place)
        return lanes

    def moved_up(self, lane: Lane) -> None:
        """Give a lane an earlier place."""
        for place in _place(lane):
            heappush(self._heaps[lane.shape_id], place)


def _place(lane: Lane) -> Iterator[Place]:
    if lane.nice is not None:
        yield lane.nice, lane.share, lane.id, lane


def _tidy(heap: list[Place]) -> bool:
    """Put the first place right, and tell whether there is one."""
    while heap:
        nice, share, _, lane = heap[0]
        if lane.nice is None:
            heappop(heap)
        elif (nice, share) != (lane.nice, lane.share):
            heapreplace(heap, (lane.nice, lane.share, lane.id, lane))
        else:
            return True
    return False


@dataclass(frozen=True, slots=True)
class GangDraft:
    """The lane, the `nice` and the job of the gang that a worker keeps room for.

    The gang should form at `expected_at`, on this process's clock, if that is known.
    """

    lane_id: int
    nice: int
    expected_at: float
    job_id: int

    @classmethod
    def of(
        cls, read_at: float, lane_id: int, nice: int, seconds: float | None, job_id: int
    ) -> "GangDraft":
        """Return a draft as `match` names it, read at a moment of this process's clock."""
        return cls(lane_id, nice, -math.inf if seconds is None else read_at + seconds, job_id)


class Edition:
    """The lanes as they were read at a moment, for all workers of a process.

    What these claim and see is noted in it, so each knows it from the others.
    """

    def __init__(self, rows: Sequence[Row] = (), read_at: float = -math.inf) -> None:
        self.read_at = read_at
        self.asked = {*rows[0]["asked"]} if rows else set[int]()
        drafts = (rows[0]["drafts"] if rows else None) or {}
        self.drafts = {int(worker): GangDraft.of(read_at, *row) for worker, row in drafts.items()}
        self.lanes = {row["id"]: read(row) for row in rows}
        self.shapes: dict[int, list[Lane]] = {}
        self._owned: dict[str, list[Lane]] = {}
        self._passed: dict[int, Lane] = {}
        for row, lane in zip(rows, self.lanes.values(), strict=True):
            lane.job_id = row["job_id"]
            if row["passed_s"] is not None:
                self.passed_by(lane.id, read_at - row["passed_s"])
            self.shapes.setdefault(lane.shape_id, []).append(lane)
            self._owned.setdefault(lane.owner, []).append(lane)
        self._order = LaneOrder(self.lanes.values())
        self._lock = Lock()

    def first(self, most: int, shapes: Iterable[int], without: Collection[int]) -> list[Lane]:
        """Return the first lanes of some shapes that have jobs, other than `without`."""
        with self._lock:
            return self._order.first(most, shapes, without)

    def waiting(self, shapes: Collection[int]) -> list[Lane]:
        """Return the lanes of some shapes whose first job is first of all, or was passed by."""
        passed = [lane for lane in list(self._passed.values()) if lane.shape_id in shapes]
        return [*passed, *self.first(SHOWN, shapes, {lane.id for lane in passed})]

    def passed_by(self, lane_id: int, at: float) -> None:
        """Note that a worker passed by the first job of a lane."""
        lane = self._passed[lane_id] = self.lanes[lane_id]
        lane.passed_at = at

    def saw(self, lane_id: int, nice: int | None) -> None:
        """Note the `nice` of a lane's first job; None if it has none that may be claimed."""
        lane = self.lanes[lane_id]
        with self._lock:
            before, lane.nice = lane.nice, nice
            if nice is not None and (before is None or nice < before):
                self._order.moved_up(lane)

    def claimed(self, lane_id: int, job_id: int) -> None:
        """Note a claim: it adds to the share of its owner."""
        if (lane := self.lanes.get(lane_id)) is None:
            return
        with self._lock:
            if lane.job_id == job_id:
                lane.job_id = None
                self._passed.pop(lane_id, None)
            for owned in self._owned[lane.owner]:
                owned.share += lane.step
