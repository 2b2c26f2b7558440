"""Weights and momentum are rewritten as one safetensors file after each step."""

import json
import threading
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

STEPS = 240
pause = threading.Event()
folder = Path("ck")
folder.mkdir(exist_ok=True)
file = folder / "model.safetensors"
random = np.random.default_rng(1)
x = random.normal(size=(256, 8))
y = x @ np.arange(8)
state = {"weights": np.zeros(8), "speed": np.zeros(8), "step": np.array(0), "ballast": x.repeat(99)}
if file.exists():
    state = load_file(file)
print("starts at", int(state["step"]), flush=True)
for step in range(int(state["step"]) + 1, STEPS + 1):
    slope = x.T @ (x @ state["weights"] - y) / len(x)
    state["speed"] = 0.9 * state["speed"] + slope
    state["weights"] = state["weights"] - 0.01 * state["speed"]
    state["step"] = np.array(step)
    save_file(state, file)
    print("step", step, flush=True)
    pause.wait(0.3)
print("end", json.dumps({"steps": STEPS, "weights": state["weights"].tolist()}))
