"""The arguments of a function as parameters of its job."""

from __future__ import annotations

from forge_client.sdk.function_jobs import parameters
from forge_client.sdk.sending import MOST


def train(lr: float, net: str = "cnn", **others: object) -> None:
    """Be called in a job."""
    del lr, net, others


def test_the_jobs_own_parameters_come_first_and_others_fill_what_is_left() -> None:
    many = {f"option_{number}": number for number in range(MOST)}
    found = parameters(train, (0.5,), many, own={"net": "vit", "run": 1})
    assert len(found) == MOST
    assert [*found.items()][:4] == [("net", "vit"), ("run", 1), ("lr", 0.5), ("option_0", 0)]
