"""A worker that slept past its lease reports a job that another now runs.

`python benchmarks/zombie` shows what each queue makes of that, on a real Postgres, with each
queue's own worker as a process.
"""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    # Its modules run in two environments, and are found from the root in both.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    import_module("benchmarks.zombie.show").main()
