"""Load a module of ours now and run it later; arguments: the module, and what its own are.

It runs once its settings come from stdin, and not at all if that ends without them. A script, since
to load the package that it lies in takes as long as to load a module.
"""

import gc
import json
import os
import sys
from importlib import import_module


def main() -> None:
    """Load, wait, run."""
    # What is loaded stays, so there is nothing to collect.
    gc.disable()
    program = import_module(sys.argv.pop(1))
    gc.freeze()
    gc.enable()
    if settings := sys.stdin.read():
        os.environ.update(json.loads(settings))
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - not worth what pathlib costs
            os.dup2(nothing.fileno(), 0)
        program.main()


if __name__ == "__main__":
    main()
