"""Fixtures for the tests of the commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.client.command import Command, command


@pytest.fixture
def forge(tmp_path: Path) -> Command:
    """The `forge` command of a user who has nothing set up."""
    return command(tmp_path)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project's folder with one small file."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n", encoding="utf-8")
    return folder
