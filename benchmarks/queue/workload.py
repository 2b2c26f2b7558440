"""The jobs of all sides."""

from forge_schema.model.spec import JobSpec, Resources

SMALL = Resources(cpus=0.1, memory_mb=16, disk_mb=1)
SPEC = JobSpec(name="bench", command=["python", "train.py"], owner="owner-0", resources=SMALL)
URGENT = SPEC.model_copy(update={"priority": 10})
OWNERS = 1_000
# Never reached: looking at a limit is what it costs.
LIMIT = 10_000
SETTLE_S = 0.02


def of_owners(jobs: int, owners: int) -> list[JobSpec]:
    """Return jobs dealt out to owners."""
    specs = [SPEC.model_copy(update={"owner": f"owner-{n}"}) for n in range(min(jobs, owners))]
    return [specs[n % owners] for n in range(jobs)]
