"""A scikit-learn model is trained piece by piece, and rewritten with joblib after each."""

import json
import threading
from pathlib import Path

import joblib
import numpy as np
from sklearn.neural_network import MLPRegressor

EPOCHS = 240
pause = threading.Event()
folder = Path("ck")
folder.mkdir(exist_ok=True)
file = folder / "model.joblib"
random = np.random.default_rng(1)
x = random.normal(size=(256, 8))
y = x @ np.arange(8)
saved = joblib.load(file) if file.exists() else {"epoch": 0}
model = saved.get("model") or MLPRegressor(hidden_layer_sizes=(700, 700), random_state=1)
print("starts at", saved["epoch"], flush=True)
for epoch in range(saved["epoch"] + 1, EPOCHS + 1):
    model.partial_fit(x, y)
    joblib.dump({"epoch": epoch, "model": model}, file)
    print("step", epoch, flush=True)
    pause.wait(0.3)
print("end", json.dumps({"epochs": EPOCHS, "loss": model.loss_, "updates": model.t_}))
