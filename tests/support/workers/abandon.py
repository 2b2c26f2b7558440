"""A program that starts one job and waits to be killed; arguments are the runner and a RunSpec."""

import pickle
import signal
import sys
from pathlib import Path

from support.workers.runners import make_runner

kind, packed = sys.argv[1:]
handle = make_runner(kind).start(pickle.loads(Path(packed).read_bytes()))  # noqa: S301  the test's own
signal.pause()
