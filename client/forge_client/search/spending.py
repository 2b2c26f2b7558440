"""What the jobs of a search have spent."""

from dataclasses import dataclass

from forge_client.backend import Backend


@dataclass(frozen=True)
class Spent:
    """What jobs have spent: GPU time, the time that they were held, and the cost of that.

    The cost is None if none is known. It leaves out `unpriced_s` of the time: that of attempts that
    run, were lost, or had a worker without a price.
    """

    gpu_s: float = 0.0
    held_s: float = 0.0
    cost: float | None = None
    unpriced_s: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        known = [spent.cost for spent in (self, other) if spent.cost is not None]
        return Spent(
            self.gpu_s + other.gpu_s,
            self.held_s + other.held_s,
            sum(known) if known else None,
            self.unpriced_s + other.unpriced_s,
        )

    @property
    def estimate(self) -> float:
        """The cost of all the time, at the mean price of that whose cost is known."""
        priced_s = self.held_s - self.unpriced_s
        return (self.cost or 0.0) * (self.held_s / priced_s if priced_s > 0 else 1.0)


def spent_by(backend: Backend, job_id: int) -> Spent:
    """Return what the ended attempts of a job have spent."""
    each = (
        Spent(
            attempt.gpu_seconds,
            attempt.held_s,
            attempt.cost,
            attempt.held_s if attempt.cost is None else 0.0,
        )
        for attempt in backend.attempts(job_id)
    )
    return sum(each, Spent())


def spent_so_far(backend: Backend, job_id: int, gpus: int) -> Spent:
    """Return what a job that has not ended has spent, with its `gpus` on each machine."""
    job = backend.job(job_id)
    now_s = (job.ran_s or 0.0) * job.nodes
    return spent_by(backend, job_id) + Spent(now_s * gpus, now_s, unpriced_s=now_s)
