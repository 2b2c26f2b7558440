"""Functions as jobs, a sweep and its results, as a user writes them."""

import forge_client as forge


@forge.job(timeout="5m")
def train(lr: float) -> dict[str, float]:
    """Refuse what is too large, as real programs do."""
    if lr > 1:
        raise ValueError(f"lr {lr} is too large")
    return {"acc": 1 - lr}


if __name__ == "__main__":
    for result in train.map([0.1, 0.2]):
        print(result)
    try:
        train.submit(2.0).result()
    except ValueError as failure:
        print("the job's own exception:", failure)
