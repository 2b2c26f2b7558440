"""Curves go to TensorBoard's event files with tensorboardX, the weights to a file of numpy."""

import json
import struct
import threading
from pathlib import Path

import numpy as np
from tensorboardX import SummaryWriter
from tensorboardX.proto.event_pb2 import Event

STEPS = 240
pause = threading.Event()
folder = Path("ck")
folder.mkdir(exist_ok=True)
file = folder / "state.npz"


def steps_in(events):
    """Read an event file: length, check sum, event, check sum."""
    data = events.read_bytes()
    while len(data) >= 12:
        (length,) = struct.unpack_from("<Q", data)
        event = Event.FromString(data[12 : 12 + length])
        yield from (event.step for value in event.summary.value if value.tag == "loss")
        data = data[16 + length :]


state = dict(np.load(file)) if file.exists() else {"step": 0, "weights": np.zeros(1000)}
done, weights = int(state["step"]), state["weights"]
print("starts at", done, flush=True)
with SummaryWriter(folder / "runs", flush_secs=1) as writer:
    for step in range(done + 1, STEPS + 1):
        weights = weights + 1 / step
        writer.add_scalar("loss", 1 / step, step)
        np.savez(folder / "next.npz", step=step, weights=weights)
        (folder / "next.npz").replace(file)
        print("step", step, flush=True)
        pause.wait(0.3)
logged = {step for events in folder.glob("runs/*tfevents*") for step in steps_in(events)}
end = {"sum": float(weights.sum()), "not in the curve": STEPS - len(logged)}
print("end", json.dumps(end))
