"""An LMDB environment holds the history and the newest state."""

import json
import threading

import lmdb

STEPS = 240
pause = threading.Event()
environment = lmdb.open("ck", map_size=1 << 26)
with environment.begin() as reading:
    done = int(reading.get(b"done", b"0"))
    weights = reading.get(b"weights", bytes(40_000))
print("starts at", done, flush=True)
for step in range(done + 1, STEPS + 1):
    weights = bytes((value * 5 + step) % 256 for value in weights)
    with environment.begin(write=True) as writing:
        writing.put(b"step-%05d" % step, b"%.6f" % (1 / step))
        writing.put(b"weights", weights)
        writing.put(b"done", b"%d" % step)
    print("step", step, flush=True)
    pause.wait(0.3)
with environment.begin() as reading:
    steps = sum(key.startswith(b"step-") for key, _ in reading.cursor())
print("end", json.dumps({"steps": steps, "sum": sum(weights)}))
