"""Ordinary training programs of many libraries are struck five times each, and end as if not.

The programs are in `libraries`, written as users of each library would write them: they know
nothing of Forge. FORGE_TEST_LIBRARIES_BIN names a folder with the programs of an environment that
has the libraries; `make test-libraries` makes one, and prints a table.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chaos.dice import dice_of
from forge_client import Client
from support.client.own_up import in_a_folder_of_its_own
from support.client.strikes import STRIKES
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from forge_client.sdk.job import Job
    from support.client.command import Command

PROGRAMS = Path(__file__).parent / "libraries"
BIN = os.environ.get("FORGE_TEST_LIBRARIES_BIN", "")
SEED = int(os.environ.get("FORGE_TEST_LIBRARIES_SEED", "1"))
# Each library gets these, in an order and at moments of its own.
BLOWS = ["program killed", "program killed", "preempted", "agent killed", "machine lost"]
QUICK = {
    "FORGE_HEARTBEAT_S": "1",
    "FORGE_LEASE_TTL_S": "20",
    "FORGE_SWEEP_S": "1",
    "FORGE_RUNNER": "process",
}
JOB = """
checkpoint_interval = "2s"
checkpoint_dir = "ck"
requirements = false
backoff = 0
grace = "10s"
max_failures = 8
"""

VERSIONS = """
import importlib.metadata, sqlite3, sys
for name in sys.argv[1:]:
    print(name, importlib.metadata.version(name))
if not sys.argv[1:]:
    print("SQLite", sqlite3.sqlite_version)
"""

pytestmark = [
    pytest.mark.skipif(not BIN, reason="FORGE_TEST_LIBRARIES_BIN is not set"),
    pytest.mark.timeout(1800),
]


@dataclass(frozen=True)
class Library:
    """A program, its argument, and the packages whose versions are shown.

    `but` are the values that may differ from those of an undisturbed run, and why.
    """

    program: str
    packages: tuple[str, ...]
    argument: str = ""
    env: dict[str, str] = field(default_factory=dict)
    below: str = tempfile.gettempdir()
    but: dict[str, str] = field(default_factory=dict)


LIBRARIES = {
    "XGBoost": Library("models/xgboost_rounds", ("xgboost",)),
    "LightGBM": Library("models/lightgbm_model", ("lightgbm",)),
    "CatBoost": Library("models/catboost_snapshot", ("catboost",)),
    "Keras on JAX": Library("models/keras_backup", ("keras", "jax"), env={"KERAS_BACKEND": "jax"}),
    "Keras on TensorFlow": Library(
        "models/keras_backup", ("keras", "tensorflow-cpu"), env={"KERAS_BACKEND": "tensorflow"}
    ),
    "Orbax": Library("models/orbax_manager", ("orbax-checkpoint", "jax")),
    "scikit-learn, joblib": Library("models/sklearn_joblib", ("scikit-learn", "joblib")),
    "safetensors": Library("models/safetensors_file", ("safetensors",)),
    "spaCy": Library("models/spacy_loop", ("spacy",)),
    "SQLite, WAL": Library("stores/sqlite_history", (), "wal"),
    "SQLite, rollback journal": Library("stores/sqlite_history", (), "delete"),
    "DuckDB": Library("stores/duckdb_history", ("duckdb",)),
    "LMDB": Library("stores/lmdb_history", ("lmdb",)),
    "HDF5, rewritten": Library("stores/hdf5_state", ("h5py",), "rewritten"),
    "HDF5, kept open": Library("stores/hdf5_state", ("h5py",), "appended"),
    "zarr": Library("stores/zarr_arrays", ("zarr",)),
    "Optuna, journal": Library("stores/optuna_study", ("optuna",), "journal"),
    "Optuna, SQLite": Library("stores/optuna_study", ("optuna",), "rdb"),
    "TensorBoard files": Library(
        "stores/tensorboard_events",
        ("tensorboardX",),
        but={"not in the curve": "the file that grows is stored later than the weights"},
    ),
    "numpy memmap": Library("stores/numpy_memmap", ("numpy",)),
    "numpy memmap on tmpfs": Library("stores/numpy_memmap", ("numpy",), below="/dev/shm"),  # noqa: S108  a tmpfs is the point
}


@dataclass
class Training:
    """A library's program as a job; `struck` is what was done to it so far."""

    forge: Command
    job: Job
    struck: list[str] = field(default_factory=list)
    _told: int = 0

    @property
    def log(self) -> str:
        return "".join(self.job.logs())

    def strike(self, kind: str, after_s: float) -> None:
        """Wait until it trains, for the first time or again; some seconds later, strike.

        Raises:
            AssertionError: it ended before, or did not train within five minutes.
        """
        eventually(lambda: self._trains() or self.job.done(), 300, 0.3)
        threading.Event().wait(after_s)
        assert not self.job.done(), f"it ended after {self.struck}:\n{self.log[-5000:]}"
        self._told = len(self.log)
        STRIKES[kind](self.forge, self.job.id)
        self.struck.append(kind)

    def _trains(self) -> bool:
        new = self.log[self._told :]
        begins = self.struck[-1:] == ["agent killed"] or "starts at" in new
        return begins and new.count("\nstep ") > 1


def submitted(forge: Command, library: Library, folder: Path) -> int:
    """Submit the program as its user would, from a folder that holds nothing else."""
    folder.mkdir()
    shutil.copy(PROGRAMS / f"{library.program}.py", folder / "train.py")
    (folder / "forge.toml").write_text(JOB, encoding="utf-8")
    given = [f"--env={name}={value}" for name, value in library.env.items()]
    done = forge("submit", folder, *given, "--", *command(library))
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def command(library: Library) -> list[str]:
    return [f"{BIN}/python", "train.py", *([library.argument] if library.argument else [])]


def end(said: str) -> dict[str, Any]:
    """Return the values that a program printed last."""
    ends = [line for line in said.splitlines() if line.startswith("end ")]
    found: dict[str, Any] = json.loads(ends[-1].removeprefix("end ")) if ends else {}
    return found


def versions(library: Library) -> str:
    """Return the versions of its packages; that of SQLite for a program that needs none."""
    asked = [f"{BIN}/python", "-c", VERSIONS, *library.packages]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"a library is missing below {BIN}: {done.stderr}"
    return ", ".join(done.stdout.splitlines())


@contextmanager
def undisturbed(library: Library, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the program by itself, beside the job."""
    folder.mkdir()
    shutil.copy(PROGRAMS / f"{library.program}.py", folder / "train.py")
    env = {**os.environ, **library.env}
    with subprocess.Popen(
        command(library), cwd=folder, env=env, stdout=subprocess.PIPE, text=True
    ) as alone:
        try:
            yield alone
        finally:
            alone.kill()


@contextmanager
def up(home: Path, below: str) -> Iterator[Command]:
    """Give the command of a user with a `forge up` in the background."""
    with in_a_folder_of_its_own(home, below) as forge:
        forge.env.update(QUICK)
        begun = forge("up", "--detach", "--cpus", "4")
        assert begun.returncode == 0, begun.stderr
        try:
            yield forge
        finally:
            forge("down")


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_job_struck_five_times_ends_as_an_undisturbed_one(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    library = LIBRARIES[name]
    row: dict[str, Any] = {"library": name, "versions": versions(library)}
    dice = dice_of(SEED, name)
    blows = dice.sample(BLOWS, len(BLOWS))
    try:
        with (
            up(tmp_path, library.below) as forge,
            undisturbed(library, tmp_path / "alone") as alone,
            Client(up_dir=forge.env["FORGE_DIR"]) as client,
        ):
            job = client.job(submitted(forge, library, tmp_path / "project"))
            training = Training(forge, job)
            try:
                for kind in blows:
                    training.strike(kind, dice.uniform(2, 5))
                job.wait(900)
            finally:
                row |= shown(training)
            expected, found = end(alone.communicate(timeout=600)[0]), end(training.log)
            assert job.state == "succeeded", training.log[-5000:]
            row["differs"] = {key: found[key] for key in found if found[key] != expected[key]}
            assert found.keys() == expected.keys()
            for key in expected.keys() - library.but.keys():
                assert found[key] == alike(expected[key])
    finally:
        record_property("library", json.dumps(row))


def alike(value: object) -> object:
    """Return what equals the value, up to the rounding of sums in another order."""
    return value if isinstance(value, str) else pytest.approx(value, rel=1e-6)


def shown(training: Training) -> dict[str, Any]:
    """Return what the table shows of a job: what struck it, where it began, how attempts ended."""
    log = training.log
    return {
        "struck": training.struck,
        "began": [int(step) for step in re.findall(r"^starts at (\d+)$", log, re.MULTILINE)],
        "trained": len(re.findall(r"^step \d+$", log, re.MULTILINE)),
        "ended": [str(one.reason) for one in training.job.attempts()],
        "state": training.job.state,
    }
