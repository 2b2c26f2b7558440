"""What programs set up as they start: their settings, their log, and imports that they need."""

import os
import sys
from types import ModuleType


def standard_streams() -> None:
    """Open those of stdin, stdout and stderr that are closed, so that no connection becomes one."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004  stderr's number
        os.set_inheritable(number, True)  # noqa: FBT003  its name says what it sets
    os.close(number)
    for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115  of the whole program


def without_plugins_of_pydantic() -> None:
    """Have pydantic look for no plugins, unless a variable of its own says which.

    None is of use here, looking for them reads the metadata of all installed packages, and what
    looks for them takes a while to import, too.
    """
    if "PYDANTIC_DISABLE_PLUGINS" not in os.environ:
        loader = ModuleType("pydantic.plugin._loader")
        vars(loader)["get_plugins"] = tuple
        sys.modules.setdefault(loader.__name__, loader)
