"""The commands and their parameters, as `commands.json` lists them."""

import json
from os.path import dirname, join
from typing import Any, TypeAlias

Parameter: TypeAlias = dict[str, Any]
"""Its `name`, and its `opts` unless it is an argument; what follows is there only if it is so.

`flag`: it takes no value; `off`: those of its `opts` that turn it off; `many`: it may be given
several times, or takes several words; `choices`: its values; `completes`: a function in
`completion.py`; `help`.
"""

Command: TypeAlias = dict[str, Any]
"""Its `help` in one line, and its `parameters`; of a group, also its `commands`."""


def commands() -> Command:
    """Return the whole command."""
    with open(join(dirname(__file__), "commands.json"), encoding="utf-8") as file:
        command: Command = json.load(file)
    return command
