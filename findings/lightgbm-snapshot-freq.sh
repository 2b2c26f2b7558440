#!/usr/bin/env bash
# Surprise: LightGBM 4.7.0's parameter snapshot_freq does nothing in Python, and nothing says so.
#
# "snapshot_freq: frequency of saving model file snapshot" is among the parameters that lgb.train
# takes like all others, and one would expect checkpoints to resume from after a kill. No file is
# written and no warning is given, although output_model names a place and other unknown names are
# warned about. Only the command-line program writes them. In Python, save the model in a callback.
#
# Seen on 28 November 2026:
#   LightGBM 4.7.0
#   trees 12, files []
#   warned about snapshot_freq: False; about a name that does not exist: True
#   files of a callback: ['model-10.txt', 'model-5.txt']
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check lightgbm==4.7.0 numpy==2.4.6 scipy==1.17.0

cat >"$folder/train.py" <<'PYTHON'
import os
import sys

import lightgbm as lgb
import numpy as np

os.chdir(sys.argv[1])
rng = np.random.default_rng(0)
x = rng.normal(size=(500, 5))
data = lgb.Dataset(x, x[:, 0] + rng.normal(size=500), free_raw_data=False)


class Heard:
    def __init__(self):
        self.lines = []

    def info(self, text):
        self.lines.append(text)

    warning = info


heard = Heard()
lgb.register_logger(heard)
asked = {"objective": "regression", "snapshot_freq": 2, "output_model": "model.txt", "nosuch_name": 1}
booster = lgb.train(asked, data, num_boost_round=12)
print("LightGBM", lgb.__version__)
print(f"trees {booster.num_trees()}, files {sorted(os.listdir())}")
said = "\n".join(heard.lines)
print(
    f"warned about snapshot_freq: {'snapshot_freq' in said};"
    f" about a name that does not exist: {'nosuch_name' in said}"
)


def save(env):
    if (env.iteration + 1) % 5 == 0:
        env.model.save_model(f"model-{env.iteration + 1}.txt")


lgb.train({"objective": "regression"}, data, num_boost_round=12, callbacks=[save])
print("files of a callback:", sorted(os.listdir()))
PYTHON

mkdir "$folder/work"
seen=$("$folder/venv/bin/python" "$folder/train.py" "$folder/work" 2>/dev/null)
echo "$seen"
diff <(echo "$seen") - <<'EXPECTED'
LightGBM 4.7.0
trees 12, files []
warned about snapshot_freq: False; about a name that does not exist: True
files of a callback: ['model-10.txt', 'model-5.txt']
EXPECTED
