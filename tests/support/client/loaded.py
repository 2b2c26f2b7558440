"""What a command has imported, counted alike on every Python."""

from __future__ import annotations

import sys

# Each release loads a few more or fewer of its own; a library of it brings dozens.
MOST_STANDARD = 250
# What a distribution has Python import before anything else, as Debian does.
CUSTOM = {"sitecustomize", "usercustomize"}


def few(loaded: list[str], most: int) -> bool:
    """Tell whether at most so many modules are loaded, besides those of Python itself."""
    own = sys.stdlib_module_names | CUSTOM
    standard = [name for name in loaded if name.partition(".")[0] in own]
    return len(loaded) - len(standard) <= most and len(standard) <= MOST_STANDARD
