"""Functions as jobs on a real worker: what they return, raise and bring along."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import forge_client as forge
import nbclient
import nbformat
import numpy as np
import pytest
from support.client.reaching import reaching

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.queue.rig import Rig
    from support.workers.worker import Bed

WAIT_S = 120


class Model:
    """What only this module defines, and a worker therefore lacks."""

    def __init__(self, weights: list[float]) -> None:
        self.weights = weights


class OutOfDataError(Exception):
    """As above."""


def call(name: str, *arguments: Any) -> Any:  # noqa: ANN401  whatever the test wants
    """Do one of several things in a job."""
    match name:
        case "sum":
            return sum(arguments)
        case "found":
            return {"loss": 0.5, "shape": [1, 2]}
        case "model":
            return Model([1.5, 1e300])
        case "large":
            return b"x" * arguments[0]
        case "raise":
            raise OutOfDataError(*arguments)
        case "wrong":
            raise ValueError(*arguments)
        case _:
            import project_of_a_test  # type: ignore[import-not-found]  # noqa: PLC0415

            return project_of_a_test.NAME


@pytest.fixture
def client(process: Bed) -> Iterator[forge.Client]:
    process.worker("one", max_jobs=4)
    with forge.Client(
        database_url=process.database.url, store_url=process.store.url, owner="ann"
    ) as client:
        yield client


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "a project"
    folder.mkdir()
    (folder / "project_of_a_test.py").write_text("NAME = 'ours'")
    return folder


def test_a_function_runs_as_a_job_and_what_it_returns_comes_back(
    client: forge.Client, process: Bed, project: Path
) -> None:
    plain = forge.job(client=client, cpus=0.1, memory="256MiB", folder=project)(call)
    there = plain.options(pickled=True)
    assert there("sum", 1, 2) == 3
    jobs = {
        name: there.submit(name, *arguments)
        for name, arguments in {
            "sum": (1, 2),
            "found": (),
            "model": (),
            "large": (100_000,),
            "project": (),
        }.items()
    }
    assert jobs["sum"].result(WAIT_S) == 3
    assert jobs["found"].result(WAIT_S) == jobs["found"].found() == {"loss": 0.5, "shape": [1, 2]}
    model = jobs["model"].result(WAIT_S)
    assert (type(model), model.weights) == (Model, [1.5, 1e300])
    for name in ("model", "large"):
        for untrusting in (plain, client):
            with pytest.raises(forge.ClientError, match="is a pickle") as untrusted:
                untrusting.job(jobs[name].id).result()
            assert "@job(pickled=True)" in untrusted.value.hint
    assert jobs["large"].result(WAIT_S) == b"x" * 100_000
    assert [one.path for one in jobs["large"].artifacts()] == ["forge-returned.pkl"]
    assert len(json.dumps(jobs["large"].found())) < 200
    assert jobs["project"].result(WAIT_S) == "ours"
    assert (there.job(jobs["sum"].id).result(WAIT_S), jobs["sum"].name) == (3, "call")

    failed = there.options(max_failures=0).submit("raise", "no data")
    with pytest.raises(OutOfDataError, match="no data") as caught:
        failed.result(WAIT_S)
    cause = caught.value.__cause__
    assert isinstance(cause, forge.JobFailed)
    assert "raise OutOfDataError(*arguments)" in cause.tail
    assert cause.status.exit_code == 1
    with pytest.raises(forge.JobFailed, match="no data"):
        plain.job(failed.id).result()
    impatient = plain.options(backoff=0.1)
    wrong = impatient.submit("wrong", "lr", 7)
    # One of two calls succeeds, which is progress of the job, but none of the other one.
    packed = impatient.map(["sum", "wrong"], [1, "lr"], [10, 7], per_job=2)
    for same in (wrong, packed[1]):
        with pytest.raises(ValueError, match=r"\('lr', 7\)"):
            same.result(WAIT_S)
        assert (same.state, same.status().attempt) == ("failed", 2)
        assert str(same.status().detail).startswith("failed the same way twice: ValueError: ")
    assert (packed[0].result(), packed[0].last_metrics()) == (11, {"step": 2, "total": 2})
    with pytest.raises(OutOfDataError):
        asyncio.run(asyncio.wait_for(awaited(failed), WAIT_S))

    packed = plain.options(max_failures=0).map(
        ["sum", "wrong", "large", "sum"], [1, "lr", 100_000, 2], [10, 7, 0, 20], per_job=3
    )
    assert [(one.id, one.number) for one in packed][-1] == (packed[0].id + 1, 0)
    done, _ = forge.wait(packed, WAIT_S)
    assert done == {*packed}
    assert [packed[0].result(), packed[3].result()] == [11, 22]
    with pytest.raises(ValueError, match=r"\('lr', 7\)"):
        packed[1].result()
    with pytest.raises(forge.ClientError, match="is a pickle"):
        packed[2].result()
    assert [packed[0].state, packed[3].state] == ["failed", "succeeded"]

    _an_executor_runs_calls(client, project)
    many = there.map(["sum"] * 3, [1, 2, 3], [10, 20, 30])
    assert [one.result(WAIT_S) for one in many] == [11, 22, 33]
    assert len({one.status().bundle_digest for one in many}) == 1
    assert process.log(jobs["sum"].id) == b""


def _an_executor_runs_calls(client: forge.Client, project: Path) -> None:
    with forge.Executor(client=client, cpus=0.1, memory="256MiB", folder=project) as pool:
        alone = pool.submit(call, "sum", 1, 2)
        both = pool.map(call, ["sum"] * 3, [1, 2], [10, 20, 30], timeout=WAIT_S, chunksize=2)
    assert (alone.result(0), [*both]) == (3, [11, 22])
    with pytest.raises(RuntimeError, match="is shut down"):
        pool.submit(call, "sum")


def test_runs_of_a_function_have_its_arguments_and_one_experiment(
    rig: Rig, project: Path, tmp_path: Path
) -> None:
    def train(lr: float, net: str = "cnn", *rest: int, data: object = None, **more: bool) -> None:
        """Do nothing."""

    # As in a script, which brings no project.
    train.__module__ = "__main__"
    long = "x" * 101
    with reaching("direct", rig, (tmp_path / "store").as_uri()) as client:
        there = forge.job(client=client, idempotency_key="k", parameters={"seed": 1})(train)
        jobs = [there.submit(0.5, long, 7, data=[1], ema=True) for _ in range(2)]
        numbers: list[Any] = [np.float32(0.25), np.int64(2)]
        jobs += there.options(idempotency_key=None).map(numbers)
        forge.job(client=client, folder=project)(train).submit(float("nan"), data=2**63)
        runs = {run.job_id: run for run in client.runs()}
    assert jobs[0].id == jobs[1].id
    assert runs[jobs[0].id].parameters == {"lr": 0.5, "ema": True, "seed": 1}
    assert [runs[one.id].parameters["lr"] for one in jobs[2:]] == [0.25, 2]
    assert [run.experiment for _, run in sorted(runs.items())] == [*["train"] * 3, "a project"]
    assert runs[max(runs)].parameters == {"net": "cnn"}


async def awaited(job: forge.FunctionJob[Any]) -> object:
    return await job


def test_another_python_says_so(
    client: forge.Client, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = forge.job(client=client, cpus=0.1, max_failures=0, folder=project)(call)
    with monkeypatch.context() as older:
        # Not that of the whole process: libraries look at it too.
        python = SimpleNamespace(version_info=(3, 8, 1), modules=sys.modules)
        older.setattr("forge_client.sdk.function_jobs.sys", python)
        job = there.submit("sum", 1)
    said = r"pickled by Python 3\.8, but this job's Python is .* image='python:3\.8-slim'"
    with pytest.raises(forge.JobFailed, match=said):
        job.result(WAIT_S)


CELLS = (
    """
import forge_client as forge

client = forge.Client(database_url={database!r}, store_url={store!r}, owner="ann")
SCALE = 20
""",
    """
class Model:
    def __init__(self, size):
        self.size = size

@forge.job(client=client, cpus=0.1, pickled=True)
def train(size):
    print("training")
    return Model(size * SCALE)

job = train.submit(2)
job.watch().state == "succeeded"
""",
    "job",
    "job.result().size, isinstance(job.result(), Model)",
    "client.jobs()",
    "client.jobs().to_frame()",
)


@pytest.mark.usefixtures("client")
def test_a_notebook_submits_a_cell_and_shows_its_progress(
    process: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    places = {"database": process.database.url, "store": process.store.url}
    sources = [CELLS[0].format(**places), *CELLS[1:]]
    made: Any = nbformat.v4
    book = made.new_notebook(cells=[made.new_code_cell(one) for one in sources])
    nbclient.NotebookClient(book, timeout=WAIT_S, kernel_name="python3").execute()
    _, (live, ended), (card,), (value,), (jobs,), (frame,) = [one.outputs for one in book.cells]
    assert "<td>succeeded</td>" in live.data["text/html"]
    assert ended.data["text/plain"] == "True"
    assert "<td>train</td>" in card.data["text/html"]
    assert value.data["text/plain"] == "(40, True)"
    assert "<td>train</td>" in jobs.data["text/html"]
    assert "train" in frame.data["text/plain"]
