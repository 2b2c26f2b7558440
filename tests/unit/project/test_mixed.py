"""The example of unequal ranks trains the same, however the batches are split."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.ports import free_port

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "examples" / "mixed" / "train.py"
# An environment with PyTorch, which no part of Forge needs.
BIN = os.environ.get("FORGE_TEST_TORCH_BIN", "")

pytestmark = pytest.mark.skipif(not BIN, reason="FORGE_TEST_TORCH_BIN is not set")


def ran(home: Path, shares: list[float | None], busy: int | None = None) -> dict[str, Any]:
    """Run a rank for each share; the machine of rank `busy` computes something else too."""
    common = {
        **os.environ, "PYTHONPATH": str(ROOT / "worker"), "FORGE_OUTPUT_DIR": str(home),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(len(shares)),
        "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip
    ranks: list[subprocess.Popen[bytes]] = []
    for number, share in enumerate(shares):
        given = {} if share is None else {"FORGE_SPEED_SHARE": str(share)}
        own = {**common, **given, "RANK": str(number)}
        command = [f"{BIN}/python", str(SCRIPT), "--batch", "30", "--steps", "8"]
        # The lowest priority, beside others of the highest, is the slowest machine there is here.
        slow = ["nice", "-n", "19"] if number == busy else []
        ranks.append(subprocess.Popen([*slow, *command], env=own))
    try:
        assert [rank.wait(timeout=300) for rank in ranks] == [0] * len(ranks)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    told: dict[str, Any] = json.loads((home / "result.json").read_text(encoding="utf-8"))
    return told


def test_the_loss_is_that_of_one_rank_whatever_the_parts(tmp_path: Path) -> None:
    alone = ran(tmp_path, [1.0])
    assert alone["by_speed"]["parts"] == [30]
    unequal = ran(tmp_path, [0.75, 0.2, 0.05])
    assert unequal["equal"]["parts"] == [10, 10, 10]
    assert unequal["by_speed"]["parts"] == [21, 7, 2]
    losses = alone["by_speed"]["losses"]
    # It learns, or else any weight of a rank would do.
    assert losses[-1] != pytest.approx(losses[0], rel=1e-3)
    for run in (unequal["equal"], unequal["by_speed"]):
        assert run["losses"] == pytest.approx(losses, rel=1e-5)


def test_ranks_measure_their_speed_if_it_is_not_given(tmp_path: Path) -> None:
    told = ran(tmp_path, [None, 0.5], busy=1)
    assert sum(told["shares"]) == pytest.approx(1)
    assert min(told["shares"]) > 0
    assert told["shares"] != [0.5, 0.5]
    assert sum(told["by_speed"]["parts"]) == 30
    assert told["by_speed"]["losses"] == pytest.approx(told["equal"]["losses"], rel=1e-5)
