"""The invariants that the chaos suite checks, as its checker says them."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests"))

HEAD = """\
# Invariants

Generated from the code. After a run of the chaos suite, these hold for what the queue promised its
clients, the database and the store. [Reliability](../reliability.md) says how they are checked.

"""


def page() -> str:
    """Return the page about the invariants."""
    return HEAD + "".join(_lines())


def _lines() -> Iterator[str]:
    for invariant in import_module("chaos.check.invariants").INVARIANTS:
        yield f"- {invariant.sentence}\n"
