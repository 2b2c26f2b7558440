"""How long until a job goes on whose worker was killed, or told to leave.

`python benchmarks/recovery` prints the table of RESULTS.md.
"""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    import_module("benchmarks.recovery.show").main()
