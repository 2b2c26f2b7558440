#!/usr/bin/env bash
# Surprise: MLflow 3.17.2 keeps an infinite metric as the largest finite number, and NaN as NaN.
#
# log_metric takes both, and neither warns. One would expect that a loss which overflowed is read as
# it was logged, since the NaN beside it is: but what comes back passes math.isfinite, and a mean or
# an axis of a chart over it is 1.8e308. To find a run that diverged, compare with sys.float_info.max
# too, or log NaN in place of infinity.
#
# It decided what docs/frameworks.md says about the numbers of MLflow.
#
# Seen on 29 November 2026:
#   mlflow 3.17.2
#   logged nan, read nan
#   logged inf, read 1.7976931348623157e+308, finite: True
#   logged -inf, read -1.7976931348623157e+308, finite: True
#   warnings: 0
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check mlflow-skinny==3.17.2 \
    sqlalchemy==2.1.2 alembic==1.20.0

cat >"$folder/log.py" <<'PYTHON'
import logging
import math
import sys
import warnings

import mlflow

heard = []
handler = logging.Handler(logging.WARNING)
handler.emit = heard.append
mlflow.set_tracking_uri(f"sqlite:///{sys.argv[1]}/runs.db")
mlflow.set_experiment("one")
logging.getLogger("mlflow").addHandler(handler)
logged = [math.nan, math.inf, -math.inf]
with warnings.catch_warnings(record=True) as warned, mlflow.start_run() as run:
    warnings.simplefilter("always")
    for step, value in enumerate(logged):
        mlflow.log_metric("loss", value, step=step)
print("mlflow", mlflow.__version__)
read = mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")
for value, metric in zip(logged, sorted(read, key=lambda one: one.step)):
    finite = f", finite: {math.isfinite(metric.value)}" if math.isinf(value) else ""
    print(f"logged {value}, read {metric.value}{finite}")
about = [one for one in warned if "loss" in str(one.message) or "inf" in str(one.message)]
print("warnings:", len(about) + len([one for one in heard if "loss" in one.getMessage()]))
PYTHON

seen=$("$folder/venv/bin/python" "$folder/log.py" "$folder" 2>"$folder/errors") || cat "$folder/errors"
echo "$seen"
diff <(echo "$seen") - <<'EXPECTED'
mlflow 3.17.2
logged nan, read nan
logged inf, read 1.7976931348623157e+308, finite: True
logged -inf, read -1.7976931348623157e+308, finite: True
warnings: 0
EXPECTED
