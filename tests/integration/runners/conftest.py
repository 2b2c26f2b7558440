"""What several tests of runners ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_worker.runners.docker.runner import DockerRunner
from support.workers.runners import Bench, require_docker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A bench with Docker; a module of another kind of runner has its own."""
    require_docker()
    bench = Bench(DockerRunner(), tmp_path)
    yield bench
    bench.close()
