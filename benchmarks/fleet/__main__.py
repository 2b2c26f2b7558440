"""What a fleet of thousands of simulated workers costs, and what breaks first.

`python benchmarks/fleet` prints the tables of RESULTS.md; `--help` lists what can be changed.
"""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    # The simulators are processes of their own, and find the modules from the root too.
    root = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(root), str(root / "benchmarks" / "queue")]
    import_module("benchmarks.fleet.show").main()
