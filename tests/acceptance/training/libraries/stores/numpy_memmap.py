"""A memory-mapped array of numpy holds the state, and is changed in place."""

import json
import threading
from pathlib import Path

import numpy as np

STEPS = 240
pause = threading.Event()
folder = Path("ck")
folder.mkdir(exist_ok=True)
file = folder / "state.dat"
state = np.memmap(file, "f8", "r+" if file.exists() else "w+", shape=(50_000,))
done = int(state[0])
print("starts at", done, flush=True)
for step in range(done + 1, STEPS + 1):
    state[step] = 1 / step
    state[0] = step
    state.flush()
    print("step", step, flush=True)
    pause.wait(0.3)
print("end", json.dumps({"steps": int(np.count_nonzero(state[1:])), "sum": float(state.sum())}))
