"""What the tests of the queue share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.rig import Rig

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def rig(database_url: str) -> Iterator[Rig]:
    """A queue on a database of the test's own, by a clock that the test moves."""
    rig = Rig(database_url)
    yield rig
    rig.close()
