"""Whether a queue can be upgraded while it is in use, and what its users see of it.

`python benchmarks/upgrade` prints the tables of RESULTS.md.
"""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    root = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(root), str(root / "tests")]
    import_module("benchmarks.upgrade.show").main()
