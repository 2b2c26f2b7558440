"""Which metrics of runs are shown and drawn, and which of their values is the best."""

from __future__ import annotations

import pytest
from forge_schema.model.results import (
    ANY_METRIC,
    ColumnUnknown,
    Run,
    columns_of,
    drawn_metric,
    lower_is_better,
    measured,
    require_metric,
)


def run(*metrics: str, **parameters: float) -> Run:
    given = {"job_id": 1, "name": "a", "owner": "ann", "state": "ready", "submitted_at": 0}
    values = {key: {"last": 1, "min": 0, "max": 2} for key in metrics}
    return Run.model_validate({**given, "metrics": values, "parameters": parameters})


MIXED = [
    *(run("", "gn", "lr", "time", "val/acc", "train/loss", "step", lr=0.1) for _ in range(3)),
    run("gn", "lr", "time", "train/loss"),
    run("m0", "m1", "l1_loss", "gn"),
]


def test_losses_and_scores_that_most_runs_have_are_shown_first() -> None:
    shown = ["train/loss", "val/acc", "gn", "time", "l1_loss", "m0", "m1"]
    assert measured(MIXED) == shown
    assert measured([]) == []


def test_what_no_cell_holds_is_no_column() -> None:
    results = [
        {"score": 1, "raised": {"traceback": "x" * 300}},
        {"score": None, "pickled": "gA" * 200},
    ]
    runs = [run().model_copy(update={"result": result}) for result in results]
    assert columns_of(runs, "result") == ["score"]
    assert columns_of(MIXED[-1:], "metrics") == ["m0", "m1", "l1_loss", "gn"]


@pytest.mark.parametrize(
    ("wanted", "drawn"),
    [
        ((ANY_METRIC,), "train/loss"),
        (("gn.best", ANY_METRIC), "gn"),
        (("metrics.m0.max",), "m0"),
        (("lr", ANY_METRIC), "train/loss"),
        (("cost", "lr", "time.min"), "time"),
        (("lr",), "lr"),
        (("cost",), None),
    ],
)
def test_the_metric_of_a_wanted_column_is_drawn(wanted: tuple[str, ...], drawn: str) -> None:
    assert drawn_metric(MIXED, wanted) == drawn
    assert drawn_metric([run()], wanted) is None


def test_a_metric_that_no_run_has_cannot_be_drawn() -> None:
    require_metric([], "train/los")
    require_metric(MIXED, "lr")
    for runs, name, hint in (
        (MIXED, "train/los", "did you mean train/loss?"),
        (MIXED, "cost", "there are , gn, lr"),
        ([run()], "loss", "they have no metrics"),
    ):
        with pytest.raises(ColumnUnknown, match=f"has a metric '{name}'") as refused:
            require_metric(runs, name)
        assert (refused.value.hint or "").startswith(hint)


@pytest.mark.parametrize(
    "name",
    [
        *("loss", "Loss/train", "train_loss_epoch", "loss_cls", "valLoss", "MSELoss", "nll", "bce"),
        *("kl", "fid", "val/mape", "error_rate", "time_s", "valloss", "runtime", "xerr"),
        "accuracy_seconds",
    ],
)
def test_the_least_of_a_loss_an_error_or_a_time_is_its_best(name: str) -> None:
    assert lower_is_better(name)


@pytest.mark.parametrize(
    "name",
    ["acc", "Accuracy/val", "elbo", "f1", "tokens_per_second", "klass", "lossless_x", "error_f1"],
)
def test_of_other_metrics_the_greatest_is_the_best(name: str) -> None:
    assert not lower_is_better(name)
