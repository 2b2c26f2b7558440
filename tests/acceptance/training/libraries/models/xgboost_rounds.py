"""XGBoost saves its model after each round, and goes on from the newest file."""

import json
import threading
from pathlib import Path

import numpy as np
import xgboost as xgb

ROUNDS = 240
pause = threading.Event()
folder = Path("ck")
folder.mkdir(exist_ok=True)


class Progress(xgb.callback.TrainingCallback):
    def after_iteration(self, model, epoch, evals_log):
        print("step", model.num_boosted_rounds(), flush=True)
        pause.wait(0.3)
        return False


random = np.random.default_rng(1)
x = random.normal(size=(500, 8))
data = xgb.DMatrix(x, label=x @ np.arange(8))
files = sorted(folder.glob("model_*.ubj"), key=lambda file: int(file.stem.rpartition("_")[2]))
newest = xgb.Booster(model_file=files[-1]) if files else None
done = newest.num_boosted_rounds() if newest else 0
print("starts at", done, flush=True)
saving = xgb.callback.TrainingCheckPoint(directory=folder, name="model", interval=1)
model = xgb.train(
    {"max_depth": 4, "nthread": 1, "seed": 1},
    data,
    num_boost_round=ROUNDS - done,
    xgb_model=newest,
    callbacks=[Progress(), saving],
)
end = {"rounds": model.num_boosted_rounds(), "sum": float(model.predict(data).sum())}
print("end", json.dumps(end))
