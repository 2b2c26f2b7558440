"""What many small tasks in one job cost, beside a plain loop in as many processes, in turn.

`python benchmarks/tasks` prints the table of RESULTS.md.
"""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    import_module("benchmarks.tasks.table").main(__doc__)
