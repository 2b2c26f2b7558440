"""Orbax's CheckpointManager saves in the background, and knows its newest step."""

import json
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

STEPS = 240
pause = threading.Event()
x = jax.random.normal(jax.random.key(1), (256, 8))
y = x @ jnp.arange(8.0)


@jax.jit
def trained(state):
    slope = jax.grad(lambda weights: jnp.mean((x @ weights - y) ** 2))(state["weights"])
    speed = 0.9 * state["speed"] + slope
    return {"weights": state["weights"] - 0.01 * speed, "speed": speed}


state = {"weights": jnp.zeros(8), "speed": jnp.zeros(8)}
options = ocp.CheckpointManagerOptions(max_to_keep=3, create=True)
with ocp.CheckpointManager(Path("ck").absolute(), options=options) as manager:
    done = manager.latest_step() or 0
    if done:
        state = manager.restore(done, args=ocp.args.StandardRestore(state))
    print("starts at", done, flush=True)
    for step in range(done + 1, STEPS + 1):
        state = trained(state)
        manager.save(step, args=ocp.args.StandardSave(state))
        print("step", step, flush=True)
        pause.wait(0.3)
    manager.wait_until_finished()
print("end", json.dumps({"steps": STEPS, "weights": state["weights"].tolist()}))
