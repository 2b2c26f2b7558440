"""The digits example with a worker that has nothing but URL and token."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.http.server_process import server_process
from support.store.storage import moto_server, new_bucket, use_credentials
from support.store.verifying_proxy import verifying_proxy
from support.workers.digits import checkpoints, stored_epoch, train, trained
from support.workers.http_bed import http_bed

if TYPE_CHECKING:
    from support.waiting import Eventually
    from support.workers.http_bed import HttpBed

TESTS = Path(__file__).parents[2]
TOO_LARGE = """
import os, pathlib, threading
pathlib.Path(os.environ["FORGE_CHECKPOINT_DIR"], "model.pt").write_bytes(os.urandom(1_500_000))
output = pathlib.Path(os.environ["FORGE_OUTPUT_DIR"])
output.joinpath("big.bin").write_bytes(os.urandom(1_200_000))
output.joinpath("small").write_text("good")
while not pathlib.Path("go").exists():
    threading.Event().wait(0.05)
"""
EPOCH = re.compile(r"^epoch (\d+)/", re.MULTILINE)


def epochs_said(made: HttpBed, job: int) -> list[int]:
    return [int(number) for number in EPOCH.findall(made.log(job).decode())]


@pytest.mark.parametrize("kind", ["process", "docker"])
def test_training_needs_nothing_but_url_and_token(
    kind: str, tmp_path: Path, database_url: str
) -> None:
    with http_bed(tmp_path, database_url, kind=kind) as made:
        worker = made.worker()
        job = train(made, epochs=12)
        made.succeeds(job)
        result, model = trained(made, job)
        assert result["accuracy"] > 0.8
        assert result["resumed_from"] is None
        assert model
        assert epochs_said(made, job) == list(range(1, 13))
        assert [row["values"]["step"] for row in made.jobs.metrics(job)] == list(range(1, 13))
        assert stored_epoch(made, job, attempt=1) == 12
        assert made.tokens["one"] not in worker.output


def test_training_goes_on_while_the_server_is_killed_and_started_again(
    tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    with http_bed(tmp_path, database_url, ttl_s=30) as made:
        worker = made.worker()
        job = train(made, epochs=24, seconds_per_epoch=0.25)
        eventually(lambda: len(checkpoints(made, job)) >= 2)
        before = len(epochs_said(made, job))
        made.servers[0].kill()
        failures = worker.output.count("server_unreachable")
        eventually(lambda: worker.output.count("server_unreachable") > failures)
        assert made.job(job)["state"] == "running"
        made.servers[0].start()
        made.succeeds(job)

        assert made.reasons(job) == ["succeeded"]
        assert 0 < before < 24
        assert epochs_said(made, job) == list(range(1, 25))
        assert trained(made, job)[0]["resumed_from"] is None
        assert "Traceback" not in worker.output


def test_training_goes_through_s3_without_credentials(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_credentials(monkeypatch)
    with (
        moto_server() as endpoint,
        new_bucket(endpoint) as bucket,
        # The server tries the store and thins out checkpoints; the worker has no keys.
        verifying_proxy(endpoint, holders=True) as verifier,
        http_bed(
            tmp_path,
            database_url,
            store_url=bucket.url(),
            servers_store_url=bucket.url(verifier.url),
        ) as made,
    ):
        made.worker()
        job = train(made, epochs=6)
        made.succeeds(job)
        assert trained(made, job)[0]["resumed_from"] is None
        assert epochs_said(made, job) == list(range(1, 7))
        # What the server tries at its start, and nothing else.
        assert set(verifier.refused) == {"BadDigest", "SignatureDoesNotMatch"}
        assert len(verifier.refused) == 2


def test_training_goes_on_at_its_checkpoint_on_another_worker(
    tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    with http_bed(tmp_path, database_url) as made:
        first = made.worker("first")
        job = train(made, epochs=16, seconds_per_epoch=0.25, max_losses=1)
        eventually(lambda: len(checkpoints(made, job)) >= 3)
        first.kill()
        # The server may still record what the worker sent last, until the job is another's.
        eventually(lambda: made.reasons(job) == ["worker_lost"])
        at_epoch = stored_epoch(made, job, attempt=1)
        made.worker("second")
        made.succeeds(job)
        assert made.reasons(job) == ["worker_lost", "succeeded"]
        assert trained(made, job)[0]["resumed_from"] == at_epoch
        made.worker("first")


def test_files_over_the_limit_of_one_upload_do_not_undo_a_success(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_credentials(monkeypatch)
    monkeypatch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)
    with (
        moto_server() as endpoint,
        new_bucket(endpoint) as bucket,
        http_bed(tmp_path, database_url, servers=0, store_url=bucket.url()) as made,
        server_process(
            tmp_path, database_url, bucket.url(), "support.store.small_uploads"
        ) as server,
    ):
        made.servers.append(server)
        worker = made.worker()
        job = made.script(TOO_LARGE, max_losses=3)
        limit = "it has more than 977 KiB, the most that S3 accepts at once"
        made.says(job, f"forge: no checkpoint was stored: 'model.pt': {limit}")
        next(worker.folder.glob("jobs/*/work")).joinpath("go").touch()
        made.succeeds(job)
        assert made.reasons(job) == ["succeeded"]
        assert made.artifacts(job) == {"small": b"good"}
        said = made.log(job).decode()
        unstored = f"the artifact 'big.bin' was not stored: {limit}"
        assert f"forge: {unstored}" in said
        assert said.count("no checkpoint was stored") == 1
        assert made.job(job)["detail"].startswith(unstored)
        assert worker.leave() == 0
