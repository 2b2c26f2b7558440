"""The example project trains, reports, and resumes as if it had never been interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[3] / "examples" / "digits" / "train.py"


class Run:
    """Runs of the script that share one checkpoint folder."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.notice = home / "preempt"
        self.environment = {
            "FORGE_CHECKPOINT_DIR": str(home / "checkpoint"),
            "FORGE_OUTPUT_DIR": str(home / "output"),
            "FORGE_METRICS_FILE": str(home / "metrics.jsonl"),
            "FORGE_PREEMPT_FILE": str(self.notice),
        }

    def start(self, *options: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-B", "-W", "error", str(SCRIPT), *options],
            env=self.environment,
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self, *options: str) -> str:
        with self.start(*options) as process:
            output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
        return output

    def interrupt(self, how: signal.Signals | Path, *options: str) -> int:
        """Start, interrupt during the third epoch, and return the exit status."""
        with self.start(*options, "--seconds-per-epoch", "0.5") as process:
            assert process.stdout is not None
            while not process.stdout.readline().startswith("epoch 2/"):
                assert process.poll() is None
            if isinstance(how, Path):
                how.touch()
            else:
                process.send_signal(how)
            return process.wait(timeout=60)

    def metrics(self) -> list[dict[str, float]]:
        lines = (self.home / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def result(self) -> dict[str, object]:
        stored = (self.home / "output" / "result.json").read_text(encoding="utf-8")
        return dict(json.loads(stored))

    def weights(self) -> dict[str, np.ndarray]:
        with np.load(self.home / "output" / "model.npz") as stored:
            return {name: stored[name] for name in stored.files}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_it_learns_the_digits_and_reports_every_epoch(run: Run) -> None:
    output = run.finish("--epochs", "30")

    assert len(run.metrics()) == 30
    assert [line["step"] for line in run.metrics()] == list(range(1, 31))
    last = run.metrics()[-1]
    assert last["total"] == 30
    assert f"epoch 30/30 loss {last['loss']:.3f} accuracy {last['accuracy']:.3f}" in output
    assert last["loss"] < run.metrics()[0]["loss"]
    assert last["accuracy"] > 0.95
    assert run.result() == {"accuracy": last["accuracy"], "epochs": 30, "resumed_from": None}


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_ends_like_one_that_was_not(
    run: Run, tmp_path_factory: pytest.TempPathFactory, how: signal.Signals
) -> None:
    whole = Run(tmp_path_factory.mktemp("whole"))
    whole.finish("--epochs", "5")

    status = run.interrupt(how, "--epochs", "5")
    assert status == (143 if how is signal.SIGTERM else -signal.SIGKILL)
    assert "resumed at epoch 3" in run.finish("--epochs", "5")

    assert run.result()["resumed_from"] == 2
    assert run.metrics() == whole.metrics()
    assert _same(run.weights(), whole.weights())


def test_another_seed_is_another_model(run: Run, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = Run(tmp_path_factory.mktemp("other"))
    run.finish("--epochs", "1")
    other.finish("--epochs", "1", "--seed", "1")
    assert not _same(run.weights(), other.weights())


def test_the_preemption_notice_stops_it(run: Run) -> None:
    assert run.interrupt(run.notice, "--epochs", "5") == 143
    assert not (run.home / "output").exists()
    run.notice.unlink()
    assert "resumed at epoch 3" in run.finish("--epochs", "5")


def test_a_finished_run_trains_nothing_more(run: Run) -> None:
    run.finish("--epochs", "2")
    weights = run.weights()
    assert "nothing is left to train" in run.finish("--epochs", "2")
    assert _same(run.weights(), weights)


def test_a_checkpoint_of_another_seed_is_refused(run: Run) -> None:
    run.finish("--epochs", "1")
    with run.start("--epochs", "1", "--seed", "7") as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "is from a run with --seed 0, not 7" in output
    assert "Traceback" not in output


def test_alone_it_writes_below_its_folder(run: Run) -> None:
    run.environment.clear()
    run.finish("--epochs", "1")
    written = {path.name for path in (run.home / "runs").rglob("*") if path.is_file()}
    assert written == {"checkpoint.npz", "metrics.jsonl", "model.npz", "result.json"}


def _same(some: dict[str, np.ndarray], others: dict[str, np.ndarray]) -> bool:
    return some.keys() == others.keys() and all(
        np.array_equal(some[name], others[name]) for name in some
    )
