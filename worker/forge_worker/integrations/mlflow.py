"""MLflow: `with start_run():` instead of `with mlflow.start_run():`."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any

from forge_worker.integrations import group, tracked

TAG = "forge.run"


def start_run(**given: Any) -> Any:  # noqa: ANN401 - MLflow's own
    """Resume the job's run, or start it, and return it as `mlflow.start_run` does.

    It is the oldest one with the job's tag. The tag is set in the request that makes the run, so an
    attempt that dies right after leaves one that the next attempt finds. The experiment is
    the job's, unless `experiment_id`, MLFLOW_EXPERIMENT_NAME or MLFLOW_EXPERIMENT_ID names another.
    On other ranks than 0 there is no run: the block gets None, and must log nothing.
    """
    import mlflow  # type: ignore[import-not-found,unused-ignore]

    if group.rank() != 0:
        return nullcontext()
    name = tracked.name()
    if name is None:
        return mlflow.start_run(**given)
    experiment = given.pop("experiment_id", None) or _experiment(mlflow)
    found = mlflow.MlflowClient().search_runs(
        [experiment], f"tags.`{TAG}` = '{name}'", max_results=1, order_by=["start_time ASC"]
    )
    if found:
        run = mlflow.start_run(run_id=found[0].info.run_id)
    else:
        tags = {**given.pop("tags", {}), TAG: name}
        run = mlflow.start_run(
            **{"run_name": name, "experiment_id": experiment, **given, "tags": tags}
        )
    mlflow.log_params(tracked.parameters())
    place = f"#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}"
    tracked.link("mlflow", f"{mlflow.get_tracking_uri().rstrip('/')}/{place}")
    return run


def _experiment(mlflow: Any) -> str:  # noqa: ANN401 - the module
    if found := os.environ.get("MLFLOW_EXPERIMENT_ID"):
        return found
    named = os.environ.get("MLFLOW_EXPERIMENT_NAME") or tracked.group() or "Default"
    return str(mlflow.set_experiment(named).experiment_id)
