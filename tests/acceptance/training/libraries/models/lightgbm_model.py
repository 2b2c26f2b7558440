"""LightGBM saves its model as one text file, and goes on from that."""

import json
import threading
from pathlib import Path

import lightgbm as lgb
import numpy as np

ROUNDS = 240
pause = threading.Event()
folder = Path("ck")
folder.mkdir(exist_ok=True)
file = folder / "model.txt"


def save(environment):
    environment.model.save_model(file)
    print("step", environment.model.num_trees(), flush=True)
    pause.wait(0.3)


random = np.random.default_rng(1)
x = random.normal(size=(500, 8))
data = lgb.Dataset(x, label=x @ np.arange(8), free_raw_data=False)
before = lgb.Booster(model_file=file) if file.exists() else None
done = before.num_trees() if before else 0
print("starts at", done, flush=True)
model = lgb.train(
    {"num_threads": 1, "seed": 1, "deterministic": True, "verbose": -1},
    data,
    num_boost_round=ROUNDS - done,
    init_model=before,
    callbacks=[save],
)
whole = lgb.Booster(model_str=model.model_to_string())
end = {"trees": whole.num_trees(), "sum": float(whole.predict(x).sum())}
print("end", json.dumps(end))
