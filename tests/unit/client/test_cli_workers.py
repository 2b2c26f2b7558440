"""What `forge worker list` prints about a machine, even for odd reports."""

from __future__ import annotations

from typing import Any

import pytest
from forge_client.cli.admin.worker import in_use


@pytest.mark.parametrize(
    ("condition", "shown"),
    [
        ({}, ""),
        ({"cpu_percent": 12.4, "memory_percent": 70.6, "constrained": ""}, "cpu 12%, memory 71%"),
        ({"cpu_percent": 99.0, "constrained": "the CPUs are used"}, "the CPUs are used"),
        ({"cpu_percent": "many", "memory_percent": None}, ""),
        ({"constrained": ["x"]}, "['x']"),
        ({"cpu_percent": 3, "quarantine": {"GPU-a": "fell off"}}, "cpu 3%, 1 of its GPUs broken"),
        ({"quarantine": 7}, ""),
    ],
)
def test_a_machine_in_short(condition: dict[str, Any], shown: str) -> None:
    assert in_use(condition) == shown
