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


def sweep(jobs: int) -> list[JobSpec]:
    """Return the jobs of a sweep as a server reads them; they differ as those of a sweep do."""
    return [
        JobSpec.model_validate(
            {
                "name": f"sweep {n}",
                "command": ["python", "train.py", "--lr", str(n / 1000)],
                "owner": "owner-0",
                "parameters": {"lr": n / 1000},
                "sweep": "sweep",
                "resources": {"cpus": 0.1, "memory_mb": 16, "disk_mb": 1},
            }
        )
        for n in range(jobs)
    ]
