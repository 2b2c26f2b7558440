"""Lanes as a worker sees them: their jobs' needs, their owners, and which one comes first."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush, heapreplace

from forge_schema.database.pool import Row
from forge_schema.model.worker import Capacity, is_model

# `nice` is a smallint.
FIRST = (-32768, 0)
LAST = 32767
# Watermarks kept for each lane.
REMEMBERED = 8


@dataclass(slots=True)
class Lane:
    """A lane's needs, its owner's share, and its watermarks: how far this worker emptied it.

    A share is what the owner's running jobs hold by the owner's weight, corrected by the GPU time
    that the owner has had (`forge_shares`): the least goes first. Each job holds its GPUs, or 1 if
    it has none. `nice` is that of its first job when last seen; None if
    it had none that may be claimed.

    A watermark is the last job claimed of one `nice`. It is a hint that lets the claim skip the
    dead rows in front, which Postgres cannot remove while an old snapshot lives. A job that
    appears below it waits for the next refresh.
    """

    id: int
    needs: Capacity
    limited: bool
    owner: str
    weight: float
    share: float
    nice: int | None = None
    watermarks: dict[int, int] = field(default_factory=dict)

    @property
    def step(self) -> float:
        """What one more job adds to the owner's share."""
        return max(self.needs.gpus, 1) / self.weight

    def fits(self, free: Capacity) -> int:
        """Return how many jobs of this lane fit into what is free."""
        if self.needs.gpus and not self.suits(free):
            return 0
        pairs = (
            (free.cpus, self.needs.cpus),
            (free.memory_mb, self.needs.memory_mb),
            (free.disk_mb, self.needs.disk_mb),
            (free.gpus, self.needs.gpus),
        )
        # Ten tenths of a CPU are one CPU, which // would miss.
        return min(int(have / need + 1e-9) for have, need in pairs if need)

    def lent(self, cpus: float, memory_mb: int) -> "Lane":
        """Return the lane as seen by a worker that lends this much to jobs that ask for a share."""
        return replace(self, needs=replace(self.needs, cpus=cpus, memory_mb=memory_mb))

    def suits(self, free: Capacity) -> bool:
        """Tell whether the GPUs of `free` are of the kind this lane asks for."""
        return not free.gpu_model or (
            free.vram_mb >= self.needs.vram_mb and is_model(self.needs.gpu_model, free.gpu_model)
        )

    def ranges(self) -> Iterator["Range"]:
        """Yield the ranges of `ready` above the watermarks."""
        after = FIRST
        for nice, job_id in sorted(self.watermarks.items()):
            yield self, after, nice - 1
            after = (nice, job_id)
        yield self, after, LAST

    def raise_watermark(self, nice: int, job_id: int) -> None:
        """Remember how far this worker emptied the lane."""
        self.watermarks.pop(nice, None)
        self.watermarks[nice] = job_id
        if len(self.watermarks) > REMEMBERED:
            del self.watermarks[next(iter(self.watermarks))]


# A lane, the `(nice, job_id)` after which to look, and the last `nice` to look at.
Range = tuple[Lane, tuple[int, int], int]


def read(row: Row) -> Lane:
    """Return a lane as `match` names it."""
    needs = Capacity(
        row["cpus"],
        row["memory_mb"],
        row["disk_mb"],
        row["gpus"],
        row["gpu_model"],
        row["vram_mb"],
    )
    return Lane(
        row["id"], needs, row["limited"], row["owner"], row["weight"], row["share"], row["nice"]
    )


Place = tuple[int, float, int, Lane]


class Order:
    """The lanes that have jobs, in the order in which these are to be claimed.

    Lanes with the same needs share a heap. A place that is no longer that of its lane is put right
    when it comes first.
    """

    def __init__(self, lanes: Iterable[Lane]) -> None:
        self._heaps: dict[Capacity, list[Place]] = {}
        for lane in lanes:
            self._heaps.setdefault(lane.needs, []).extend(_place(lane))
        for heap in self._heaps.values():
            heapify(heap)

    def first(self, most: int, free: Capacity, without: Collection[int]) -> list[Lane]:
        """Return the first lanes of which a job fits into `free`, other than `without`."""
        heaps = [h for h in self._heaps.values() if _tidy(h) and h[0][3].fits(free) > 0]
        seen: dict[int, tuple[list[Place], Place]] = {}
        found: list[Lane] = []
        while heaps and len(found) < most:
            heap = min(heaps, key=lambda heap: heap[0])
            place = heappop(heap)
            lane = place[3]
            if lane.id not in seen and lane.id not in without:
                found.append(lane)
            # A lane that moved up twice has two equal places.
            seen[lane.id] = heap, place
            heaps = heaps if _tidy(heap) else [h for h in heaps if h]
        for heap, place in seen.values():
            heappush(heap, place)
        return found

    def moved_up(self, lane: Lane) -> None:
        """Give a lane an earlier place."""
        for place in _place(lane):
            heappush(self._heaps[lane.needs], place)


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
