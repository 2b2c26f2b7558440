"""Fixtures for the tests of whole workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.workers.http_bed import http_bed
from support.workers.worker import bed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.workers.worker import Bed


@pytest.fixture(params=["direct", "http"])
def each_way(request: pytest.FixtureRequest, tmp_path: Path, database_url: str) -> Iterator[Bed]:
    """Workers with direct access, then over HTTP, that run processes."""
    opened = bed("process", tmp_path, database_url) if request.param == "direct" else None
    with opened or http_bed(tmp_path, database_url) as made:
        yield made
