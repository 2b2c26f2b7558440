"""What pages, endpoints and reports take on a queue with a million attempts behind it.

`python benchmarks/pages` prints the tables of RESULTS.md; `--attempts` makes the past smaller.
"""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    root = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(root), str(root / "tests"), str(root / "benchmarks" / "queue")]
    import_module("benchmarks.pages.show").main()
