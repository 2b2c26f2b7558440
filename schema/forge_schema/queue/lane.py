"""A lane as a worker sees it: its jobs' needs, their owner, and how far it has been emptied."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

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

    A share is what the owner's running jobs hold by the owner's weight: the least goes first. Each
    job holds its GPUs, or 1 if it has none.

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
    return Lane(row["id"], needs, row["limited"], row["owner"], row["weight"], row["share"])
