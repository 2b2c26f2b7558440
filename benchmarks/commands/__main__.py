"""What commands and programs cost, as a multiple of `python -c pass`: CPU time, in pairs, in turn.

`python benchmarks/commands` prints the tables of RESULTS.md. `--before FOLDER` adds an earlier
checkout, and `--peer 'modal --help'` a command of another tool; both run in turn with Forge's.
"""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    import_module("benchmarks.commands.table").main(__doc__)
