"""The digits example through real workers: in a container, as a process, and through a crash."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.store.storage import CREDENTIALS, moto_server, new_bucket, use_credentials
from support.workers.digits import checkpoints, stored_epoch, train, trained
from support.workers.worker import bed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.store.storage import Bucket
    from support.waiting import Eventually


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    use_credentials(monkeypatch)
    with moto_server() as endpoint, new_bucket(endpoint) as made:
        yield made


def test_training_gives_the_same_in_a_container_and_as_a_process(
    tmp_path: Path, database_url: str, bucket: Bucket
) -> None:
    results, weights = [], []
    for kind in ("docker", "process"):
        (tmp_path / kind).mkdir()
        with bed(kind, tmp_path / kind, database_url, bucket.url(), CREDENTIALS) as made:
            made.worker()
            job = train(made, epochs=30)
            made.succeeds(job)
            result, model = trained(made, job)
            results.append(result)
            weights.append(model)
            lines = made.log(job).decode().splitlines()
            assert sum(line.startswith("epoch ") for line in lines) == 30
            metrics = [row["values"] for row in made.jobs.metrics(job)]
            assert [line["step"] for line in metrics] == list(range(1, 31))
            assert stored_epoch(made, job, attempt=1) == 30
    assert results[0]["accuracy"] == pytest.approx(results[1]["accuracy"], abs=0.005)
    assert results[0]["accuracy"] > 0.95
    for name, values in weights[0].items():
        np.testing.assert_allclose(values, weights[1][name], rtol=1e-4, atol=1e-5)


def test_training_goes_through_a_store_in_a_folder(tmp_path: Path, database_url: str) -> None:
    with bed("process", tmp_path, database_url) as made:
        made.worker()
        job = train(made, epochs=3)
        made.succeeds(job)
        assert trained(made, job)[0]["resumed_from"] is None


@pytest.mark.parametrize("kind", ["process", "docker"])
def test_training_goes_on_at_the_last_checkpoint_after_its_worker_was_killed(
    kind: str, tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    with bed(kind, tmp_path, database_url) as made:
        first = made.worker("first")
        job = train(made, epochs=16, seconds_per_epoch=0.25, max_losses=1)
        eventually(lambda: len(checkpoints(made, job)) >= 3)
        first.kill()
        at_epoch = stored_epoch(made, job, attempt=1)
        second = made.worker("second")
        made.succeeds(job)

        assert made.reasons(job) == ["worker_lost", "succeeded"]
        attempts = made.jobs.attempts(job)
        assert [row["worker"] for row in attempts] == [first.name, second.name]
        assert [row["accepted"] for row in attempts] == [False, True]
        assert trained(made, job)[0] == {
            "accuracy": pytest.approx(0.95, abs=0.05),
            "epochs": 16,
            "resumed_from": at_epoch,
        }
        said = made.log(job, attempt=2).decode()
        assert f"resumed at epoch {at_epoch + 1}" in said
        assert re.findall(r"^epoch (\d+)/", said, re.MULTILINE)[0] == str(at_epoch + 1)
        assert 0 < at_epoch < 16
        # What the first worker left behind waits for its next start.
        made.worker("first")


def test_worker_that_is_started_again_continues_its_process(
    tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    with bed("process", tmp_path, database_url) as made:
        patient: dict[str, Any] = {"lease_ttl_s": 600, "heartbeat_s": 100, "poll_s": 1}
        first = made.worker(**patient)
        job = train(made, epochs=12, seconds_per_epoch=0.25)
        eventually(lambda: len(checkpoints(made, job)) >= 2)
        first.kill()
        made.worker(**patient)
        made.succeeds(job)
        assert made.reasons(job) == ["succeeded"]
        assert trained(made, job)[0]["resumed_from"] is None
