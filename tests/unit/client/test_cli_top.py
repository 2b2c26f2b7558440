"""What `forge top` prints about the sweeper."""

from __future__ import annotations

import pytest
from forge_client.cli.jobs.top import _sweeper
from forge_schema.model.overview import Overview, SweeperStatus

LEAVES = "leaving leases alone after a start or outage"


@pytest.mark.parametrize(
    ("silent_s", "healthy", "holds", "shown"),
    [
        (None, False, False, "no sweeper has run yet"),
        (3, True, False, "last ran 3 s ago"),
        (3, True, True, f"last ran 3 s ago, {LEAVES}"),
        (300, False, False, "last ran 5 min ago: is one running?"),
    ],
)
def test_the_sweeper_in_short(
    silent_s: float | None,
    healthy: bool,  # noqa: FBT001  a parameter of the test
    holds: bool,  # noqa: FBT001  as above
    shown: str,
) -> None:
    sweeper = SweeperStatus(silent_s=silent_s, late_s=0, healthy=healthy, holds=holds)
    assert _sweeper(Overview.model_construct(sweeper=sweeper)).plain == shown
