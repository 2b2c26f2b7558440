"""What the tests of the queue share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.rig import Rig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.api import Api


@pytest.fixture
def rig(database_url: str) -> Iterator[Rig]:
    """A queue on a database of the test's own, by a clock that the test moves."""
    rig = Rig(database_url)
    yield rig
    rig.close()


@pytest.fixture
def api(rig: Rig, tmp_path: Path) -> Iterator[Api]:
    """A server on the rig's queue, with a file store."""
    from support.api import opened  # noqa: PLC0415  most tests serve nothing

    with opened(rig, tmp_path / "store") as api:
        yield api
