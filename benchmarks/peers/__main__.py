"""Forge beside other queues on Postgres, on one server in alternating rounds.

`python benchmarks/peers` prints the tables of RESULTS.md. It needs Node 20 and npm for two of them.
"""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    # Its modules run in two environments, and are found from the root in both.
    root = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(root), str(root / "benchmarks" / "queue")]
    import_module("benchmarks.peers.show").main()
