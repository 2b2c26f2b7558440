"""An HDF5 file holds the state: written anew after each step, or appended to while it is open."""

import json
import sys
import threading
from pathlib import Path

import h5py
import numpy as np

STEPS = 240
WAY = sys.argv[1]
pause = threading.Event()
folder = Path("ck")
folder.mkdir(exist_ok=True)
file = folder / "state.h5"


def rewritten(step, weights):
    with h5py.File(file, "w") as writing:
        writing["weights"] = weights
        writing.attrs["step"] = step


def appended(step, weights):
    one.create_dataset(f"step-{step:05d}", data=weights)
    one.attrs["step"] = step
    one.flush()


one = h5py.File(file, "a") if WAY == "appended" else None
done, weights = 0, np.zeros(2_000_000)
if WAY == "appended" and "step" in one.attrs:
    done = int(one.attrs["step"])
    weights = one[f"step-{done:05d}"][:]
if WAY == "rewritten" and file.exists():
    with h5py.File(file) as reading:
        done, weights = int(reading.attrs["step"]), reading["weights"][:]
if WAY == "appended":
    weights = weights[:1000]
print("starts at", done, flush=True)
for step in range(done + 1, STEPS + 1):
    weights = weights + 1 / step
    (rewritten if WAY == "rewritten" else appended)(step, weights)
    print("step", step, flush=True)
    pause.wait(0.3)
print("end", json.dumps({"steps": STEPS, "sum": float(weights.sum())}))
