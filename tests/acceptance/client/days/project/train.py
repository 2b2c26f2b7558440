"""Seems to train: prints, reports a loss, saves, and takes up where it was."""

import json
import os
import pathlib
import threading

saved = pathlib.Path(os.environ.get("FORGE_CHECKPOINT_DIR", "."), "state.json")
epoch = json.loads(saved.read_text())["epoch"] if saved.exists() else 0
rate = float(os.environ.get("FORGE_PARAM_RATE", "0.1"))

while epoch < 200:
    epoch += 1
    loss = (1 - rate) ** epoch
    print("epoch", epoch, "loss", round(loss, 4), flush=True)
    with open(os.environ.get("FORGE_METRICS_FILE", os.devnull), "a") as metrics:
        print(json.dumps({"step": epoch, "total": 200, "loss": loss}), file=metrics)
    new = saved.with_suffix(".new")
    new.write_text(json.dumps({"epoch": epoch}))
    new.rename(saved)
    threading.Event().wait(0.1)

pathlib.Path(os.environ.get("FORGE_OUTPUT_DIR", "."), "model.txt").write_text(str(loss))
pathlib.Path(os.environ.get("FORGE_RESULT_FILE", os.devnull)).write_text(json.dumps({"loss": loss}))
