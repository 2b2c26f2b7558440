"""What several tests of runners ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.workers.runners import Bench, docker_runner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A bench with Docker; a module of another kind of runner has its own."""
    bench = Bench(docker_runner(), tmp_path)
    yield bench
    bench.close()
