"""MLflow: `with start_run():` instead of `with mlflow.start_run():`."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any

from forge_worker import job
from forge_worker.integrations import group, tracked
from forge_worker.integrations.tracked import TrackerOutage

TAG = "forge.run"
# MLflow's own 7 retries take four minutes, in which nothing is said. To print the run's address at
# its end, it would ask the server for the run.
BOUNDS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
BRIDGED = ("log_metric", "log_batch", "log_param", "set_tag")
_outages: dict[str, TrackerOutage] = {}


def start_run(**given: Any) -> Any:  # noqa: ANN401 - MLflow's own
    """Resume the job's run, or start it, and return it as `mlflow.start_run` does.

    It is the oldest one with the job's tag. The tag is set in the request that makes the run, so an
    attempt that dies right after leaves one that the next attempt finds. The experiment is
    the job's, unless `experiment_id`, MLFLOW_EXPERIMENT_NAME or MLFLOW_EXPERIMENT_ID names another.
    On other ranks than 0 there is no run: the block gets None, and must log nothing.

    If no server is named, or it does not answer at the start, the run is in a file in the
    checkpoint folder. What is logged while it does not answer later is sent when it does.
    """
    import mlflow  # type: ignore[import-not-found,unused-ignore]

    if group.rank() != 0:
        return nullcontext()
    name = tracked.name()
    if name is None:
        return mlflow.start_run(**given)
    for variable, bound in BOUNDS.items():
        os.environ.setdefault(variable, bound)
    file = f"sqlite:///{job.checkpoint_dir() / 'mlflow.db'}"
    if not mlflow.is_tracking_uri_set():
        # MLflow's own choice is the work folder, which goes with the attempt.
        tracked.note(f"no server is named for MLflow, so its run is in {file}")
        mlflow.set_tracking_uri(file)
    try:
        run = _resumed(mlflow, name, dict(given))
    except Exception as error:
        if not _away(error):
            raise
        tracked.note(f"MLflow does not answer, so this attempt's run is in {file}: {error}")
        mlflow.set_tracking_uri(file)
        run = _resumed(mlflow, name, dict(given))
    _bridge(mlflow)
    mlflow.log_params(tracked.parameters())
    place = f"#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}"
    tracked.link("mlflow", f"{mlflow.get_tracking_uri().rstrip('/')}/{place}")
    return run


def _resumed(mlflow: Any, name: str, given: dict[str, Any]) -> Any:  # noqa: ANN401 - the module, its run
    experiment = given.pop("experiment_id", None) or _experiment(mlflow)
    runs = mlflow.MlflowClient().search_runs(
        [experiment], f"tags.`{TAG}` = '{name}'", max_results=1, order_by=["start_time ASC"]
    )
    if runs:
        return mlflow.start_run(run_id=runs[0].info.run_id)
    tags = {**given.pop("tags", {}), TAG: name}
    return mlflow.start_run(
        **{"run_name": name, "experiment_id": experiment, **given, "tags": tags}
    )


def _experiment(mlflow: Any) -> str:  # noqa: ANN401 - the module
    if experiment_id := os.environ.get("MLFLOW_EXPERIMENT_ID"):
        return experiment_id
    named = os.environ.get("MLFLOW_EXPERIMENT_NAME") or tracked.group() or "Default"
    return str(mlflow.set_experiment(named).experiment_id)


def _bridge(mlflow: Any) -> None:  # noqa: ANN401 - as above
    """Have what is logged wait for a server that does not answer."""
    server = mlflow.get_tracking_uri()
    if not server.startswith("http") or _outages:
        return
    from mlflow.store.tracking.rest_store import RestStore  # type: ignore[import-not-found,unused-ignore]

    outage = _outages[server] = TrackerOutage("MLflow's server", _away, _report)
    for method in BRIDGED:
        setattr(RestStore, method, outage.bridged(getattr(RestStore, method)))
    RestStore.update_run_info = outage.bridged(RestStore.update_run_info, last=True)


def _away(error: Exception) -> bool:
    """Return whether a request failed because nobody answered; an answer has an error code."""
    from mlflow.exceptions import MlflowException, RestException  # type: ignore[import-not-found,unused-ignore]

    message = str(error)
    silent = "failed with exception" in message or "failed with timeout" in message
    return isinstance(error, MlflowException) and not isinstance(error, RestException) and silent


def _report(method: str, *given: Any, **named: Any) -> None:  # noqa: ANN401 - the method's own
    """Report metrics that are not sent now as the job's own."""
    if method == "log_batch":
        metrics = named["metrics"] if "metrics" in named else given[2]
    elif method == "log_metric":
        metrics = [named["metric"] if "metric" in named else given[2]]
    else:
        return
    for metric in metrics:
        job.report(**{metric.key: metric.value, "step": metric.step})
