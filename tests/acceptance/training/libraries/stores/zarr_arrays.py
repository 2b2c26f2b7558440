"""Zarr arrays hold the history and the newest state, in chunks."""

import json
import threading

import numpy as np
import zarr

STEPS = 240
pause = threading.Event()
group = zarr.open_group("ck", mode="a")
if "weights" not in group:
    group.create_array("history", shape=(STEPS + 1,), chunks=(50,), dtype="f8")
    group.create_array("weights", shape=(4, 50_000), chunks=(1, 50_000), dtype="f8")
    group.attrs["step"] = 0
done, weights = int(group.attrs["step"]), group["weights"][:]
print("starts at", done, flush=True)
for step in range(done + 1, STEPS + 1):
    weights = weights + 1 / step
    group["history"][step] = 1 / step
    group["weights"][:] = weights
    group.attrs["step"] = step
    print("step", step, flush=True)
    pause.wait(0.3)
history = group["history"][1:]
end = {"steps": int(np.count_nonzero(history)), "sum": float(weights.sum())}
print("end", json.dumps({**end, "history": float(history.sum())}))
