"""Gangs of 2 to 8 machines among single jobs, on eight real workers.

`python benchmarks/gangs` prints the table of RESULTS.md, and exits with 1 if a promise is broken.
"""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    sys.exit(import_module("benchmarks.gangs.show").main())
