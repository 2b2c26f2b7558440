"""Submit a function once for each learning rate, and print the losses as they come.

Start `forge up` first; then run `python examples/python/sweep_of_functions.py`.
"""

import forge_client as forge


@forge.job(cpus=1, timeout="10min")
def descend(rate: float, steps: int = 100) -> dict[str, float]:
    """Minimise (x - 3)² from 0, and return what is left of it."""
    x = 0.0
    for _ in range(steps):
        x -= rate * 2 * (x - 3)
    return {"x": x, "loss": (x - 3) ** 2}


def main() -> None:
    """Submit the jobs, all or none, and wait for them."""
    rates = [0.001, 0.01, 0.1]
    jobs = dict(zip(descend.map(rates), rates, strict=True))
    for job in forge.as_completed(jobs):
        print(f"rate {jobs[job]:g}: loss {job.result()['loss']:.3g}")


if __name__ == "__main__":
    main()
