"""What one server holds: attacks on it, and a load of streaming workers through its faults.

`python benchmarks/server attacks`, `… sieges` and `… load` print the tables of RESULTS.md; `--help`
lists what can be changed.
"""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    root = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(root), str(root / "tests"), str(root / "benchmarks" / "queue")]
    import_module("benchmarks.server.show").main()
