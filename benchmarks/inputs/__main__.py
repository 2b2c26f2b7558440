"""What inputs cost: the first fetch beside boto3's and `aws s3 cp`, in pairs, in turn.

`python benchmarks/inputs --aws aws` prints the tables of RESULTS.md.
"""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    import_module("benchmarks.inputs.table").main(__doc__)
