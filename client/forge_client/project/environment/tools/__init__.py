"""Readers of the lists and locks that other tools write, a module for each format.

Few projects have one of them, so each is loaded when it is needed.
"""

import re
from importlib import import_module
from typing import Any

# The modules for locks whose packages are complete, by the names of their files.
LOCKS = {"poetry.lock": "poetry", "pdm.lock": "pdm", "Pipfile.lock": "pipenv"}
PYLOCK, CONDA, CONDA_LOCKS = "pylock", "conda", "conda_locks"
# `pylock.gpu.toml` is the lock of a part; so is `gpu.conda-lock.yml`, if conda-lock is told to.
PYLOCKS = re.compile(r"pylock(\.[^.]+)?\.toml")
LOCKS_OF_CONDA = re.compile(r"pixi\.lock|(.+\.)?conda-lock\.ya?ml")


def module(name: str) -> Any:  # noqa: ANN401 - a module
    """Return a module of this room by its name."""
    return import_module(f"{__name__}.{name}")
