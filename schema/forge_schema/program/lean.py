"""Keeps libraries from importing what Forge has no use for; a program imports it before them.

httpx brings a command of its own, with click, rich and pygments, and structlog shows tracebacks by
rich, with the local variables of each frame. Together they would take a fifth of a program's start.
"""

import gc
import sys
from importlib import import_module, metadata

from forge_schema.program import without_plugins_of_pydantic

# Loaded modules are no garbage; looking for some again and again would take a tenth of the start.
USUAL = gc.get_threshold()
gc.set_threshold(200_000)
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # None: not to be imported


def without(hidden: str, module: str) -> None:
    """Import a module for which another is not installed; it is for whoever imports it later."""
    if module in sys.modules:
        return
    kept = sys.modules.get(hidden)
    sys.modules[hidden] = None  # type: ignore[assignment]  # as above
    try:
        import_module(module)
    finally:
        if kept is None:
            del sys.modules[hidden]
        else:
            sys.modules[hidden] = kept


def without_plugins(module: str) -> None:
    """Import a module that would look for plugins in the metadata of all installed packages."""
    entry_points = metadata.entry_points
    metadata.entry_points = lambda **_: ()  # type: ignore[assignment]  # as it says
    try:
        import_module(module)
    finally:
        metadata.entry_points = entry_points


def loaded() -> None:
    """Collect garbage as usual from now on, of what is made from now on; a program has started."""
    gc.freeze()
    gc.set_threshold(*USUAL)


without_plugins_of_pydantic()
without("rich", "structlog")
