"""How long a job's files take to the store and back, beside copying and a plain upload.

`python benchmarks/storage` prints the tables of RESULTS.md.
"""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    import_module("benchmarks.storage.show").main()
