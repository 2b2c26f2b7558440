"""Locks of these tests are kept in a folder of their own, and no environment is active."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_client.project.environment import locks

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def kept(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the locks."""
    folder = tmp_path_factory.mktemp("locks")
    monkeypatch.setattr(locks, "locks", lambda: folder)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    return folder
