"""CatBoost saves snapshots in its train_dir, and goes on from them by itself."""

import json
import threading

import numpy as np
from catboost import CatBoostRegressor

ROUNDS = 240
pause = threading.Event()


class Progress:
    def __init__(self):
        self.first = True

    def after_iteration(self, info):
        if self.first:
            print("starts at", info.iteration - 1, flush=True)
            self.first = False
        print("step", info.iteration, flush=True)
        pause.wait(0.3)
        return True


random = np.random.default_rng(1)
x = random.normal(size=(500, 8))
model = CatBoostRegressor(
    iterations=ROUNDS,
    depth=4,
    random_seed=1,
    thread_count=1,
    train_dir="ck",
    save_snapshot=True,
    snapshot_file="snapshot.bin",
    snapshot_interval=1,
    logging_level="Silent",
)
model.fit(x, x @ np.arange(8), callbacks=[Progress()])
print("end", json.dumps({"trees": model.tree_count_, "sum": float(model.predict(x).sum())}))
