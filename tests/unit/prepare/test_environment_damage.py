"""A complete environment is damaged once a file of it is missing or has another size."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from forge_worker.prepare.python_env import FILE, inventory_damage, write_inventory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MODULE = "lib/python3.11/site-packages/mended.py"
DAMAGES: dict[str, Callable[[Path], object]] = {
    "module": lambda env: (env / MODULE).unlink(),
    "truncated": lambda env: (env / MODULE).write_text(""),
    "bin": lambda env: shutil.rmtree(env / "bin"),
    "link": lambda env: (env / "bin" / "python3").unlink(),
}


@pytest.fixture
def env(tmp_path: Path) -> Path:
    """A complete environment, in a folder with the list of its files."""
    made = tmp_path / "env"
    (made / MODULE).parent.mkdir(parents=True)
    (made / MODULE).write_text("VERSION = '1.0'\n")
    (made / "bin").mkdir()
    (made / "bin" / "python").symlink_to("/usr/bin/python3")
    (made / "bin" / "python3").symlink_to("python")
    write_inventory(tmp_path, made)
    return made


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found_and_named(env: Path, damage: str) -> None:
    assert inventory_damage(env.parent, env) is None
    DAMAGES[damage](env)
    found = inventory_damage(env.parent, env)
    assert found is not None
    assert found.startswith("missing or changed: '")


def test_what_is_added_or_compiled_is_no_damage(env: Path) -> None:
    compiled = (env / MODULE).parent / "__pycache__"
    compiled.mkdir()
    (compiled / "mended.cpython-311.pyc").write_bytes(b"x")
    (env / "added").write_text("by a job")
    assert inventory_damage(env.parent, env) is None


def test_an_environment_without_a_list_was_never_complete(env: Path) -> None:
    (env.parent / FILE).unlink()
    with pytest.raises(FileNotFoundError):
        inventory_damage(env.parent, env)
