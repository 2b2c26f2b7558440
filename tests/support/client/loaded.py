"""What a command has imported, counted alike on every Python."""

from __future__ import annotations

import sys

# Each release loads a few more or fewer of its own; a library of it brings dozens.
MOST_STANDARD = 250


def few(loaded: list[str], most: int) -> bool:
    """Tell whether at most so many modules are loaded, besides those of Python itself."""
    standard = [name for name in loaded if name.partition(".")[0] in sys.stdlib_module_names]
    return len(loaded) - len(standard) <= most and len(standard) <= MOST_STANDARD
