"""What of a function goes to its job, and how what it returns travels."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any

import cloudpickle
import forge_client as forge
import pytest
from forge_client.sdk import function_runner
from forge_client.sdk.function_jobs import called, project_of, stage
from forge_client.sdk.function_runner import same_as_json, travelling

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 0.1, 1.0, -2.5e-7, "é", [1, [2.5]], {"a": {"b": [None]}}, 2**70, 123456.75],
)
def test_plain_values_travel_as_json(value: object) -> None:
    assert same_as_json(value)
    result = travelling(value)
    assert (result if isinstance(value, dict) else result["returned"]) == value


@pytest.mark.parametrize(
    "value",
    [(1, 2), {1: 2}, {1}, b"x", float("nan"), float("inf"), 1e16, -0.0, "\0", "\ud800", print, 1j],
)
def test_other_values_travel_as_pickles(value: object) -> None:
    assert travelling([value]).keys() == {"pickled"}


def test_a_result_that_looks_like_a_mark_is_wrapped() -> None:
    for mark in function_runner.MARKS:
        assert travelling({mark: 1}) == {"returned": {mark: 1}}
    assert travelling({"returned": 1, "loss": 2}) == {"returned": 1, "loss": 2}


def test_an_exception_is_stored_whatever_its_text_has() -> None:
    said = function_runner.raised(ValueError("no\0good \ud800"), "a.py")["raised"]
    assert said["message"] == r"no\0good \ud800"
    assert "\0" not in said["traceback"]
    said["traceback"].encode()


def test_a_field_that_a_job_does_not_have_is_refused_at_the_decorator() -> None:
    with pytest.raises(forge.ClientError, match="no field 'gpu'") as refused:
        forge.job(gpu=1)(len)  # type: ignore[call-overload]
    assert "did you mean 'gpus'?" in refused.value.hint
    trained = forge.job(gpus=1)(len)
    assert repr(trained) == "JobFunction(len)"
    with pytest.raises(forge.ClientError, match="no field 'gpu'"):
        trained.options(gpu=1)  # type: ignore[call-arg]


def train(lr: float, epochs: int = 10) -> None:
    """Take numbers."""


def configured(config: dict[str, int], epochs: int = 10) -> None:
    """Take a dict."""


def anything(config, **rest):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN003, ANN201  as users have them
    """Say nothing of what it takes."""


def test_a_dict_alone_gives_arguments_by_their_names() -> None:
    named: dict[str, Any] = {"lr": 0.1, "epochs": 2}
    assert called(train, (named,)) == ((), named)
    assert called(train, (0.1, {})) == ((0.1, {}), {})
    for taking in (configured, anything, len):
        assert called(taking, (named,)) == ((named,), {})
    assert called(anything, ({"config": 1, "x": 2},)) == ((), {"config": 1, "x": 2})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lr": 0.1, "epoch": 3}, "got an unexpected keyword argument 'epoch'"),
        ({"epochs": 3}, "missing a required argument: 'lr'"),
        ({"rate": 0.1}, "{'rate': 0.1} has no name of an argument"),
    ],
)
def test_a_dict_that_does_not_fit_is_refused_before_anything_is_submitted(
    given: dict[str, Any], said: str
) -> None:
    with pytest.raises(forge.InvalidInput, match=said) as refused:
        forge.job(train).map([given])
    assert "train(lr: 'float', epochs: 'int' = 10)" in refused.value.hint


def test_nesting_without_end_is_pickled() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert not same_as_json(endless)


def test_a_function_brings_its_module_but_no_forge(tmp_path: Path) -> None:
    """A fresh Python without any of our packages runs what is staged."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "of_a_user.py").write_text(
        "import forge_client as forge\n"
        "BASE = 40\n"
        "def helper(n): return n + BASE\n"
        "@forge.job\n"
        "def inner(n): return helper(n)\n"
        "@forge.job(gpus=1)\n"
        "def outer(n): return inner(n) + len(outer.args)\n"
    )
    with pytest.MonkeyPatch.context() as path:
        path.syspath_prepend(str(project))
        outer = import_module("of_a_user").outer
        root, import_from = project_of(outer.function, None)
        stage(tmp_path / "staged", outer.function, [((2,), {})], import_from, [])
    assert (root, import_from) == (project, ["."])
    result = tmp_path / "result.json"
    subprocess.run(
        [sys.executable, "-I", "-S", tmp_path / "staged" / "run.py", "0"],
        env={"FORGE_RESULT_FILE": str(result)},
        cwd=tmp_path,
        check=True,
    )
    assert json.loads(result.read_text()) == {"returned": 42}
    assert cloudpickle.list_registry_pickle_by_value() == set()


def test_the_project_of_a_function_is_the_nearest_with_a_file_of_its_own(tmp_path: Path) -> None:
    package = tmp_path / "src" / "pkg_of_a_user"
    package.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("")
    (package / "__init__.py").write_text("def above(): pass\n")
    (package / "train.py").write_text("def main(): pass\n")
    with pytest.MonkeyPatch.context() as path:
        path.syspath_prepend(str(tmp_path / "src"))
        train = import_module("pkg_of_a_user.train")
        above = import_module("pkg_of_a_user").above
    assert project_of(train.main, None) == (tmp_path, ["src"])
    assert project_of(above, None) == (tmp_path, ["src"])
    assert project_of(train.main, tmp_path / "src") == (tmp_path / "src", ["."])


def test_scripts_notebooks_and_installed_packages_bring_nothing() -> None:
    def cell() -> None: ...

    cell.__module__ = "__main__"
    assert project_of(cell, None) == (None, [])
    assert project_of(cloudpickle.dumps, None) == (None, [])
    assert project_of(json.dumps, None) == (None, [])


def test_what_cannot_be_pickled_is_named(tmp_path: Path) -> None:
    lock = Lock()

    def locked() -> bool:
        return lock.locked()

    with pytest.raises(forge.ClientError, match=r"locked\(\) cannot be sent to a job") as caught:
        stage(tmp_path / "one", locked, [], [], [])
    assert "inside the function" in caught.value.hint
    with pytest.raises(forge.ClientError, match=r"an argument of call\(\)"):
        stage(tmp_path / "two", call, [((lock,), {})], [], [])


def test_a_function_of_the_library_is_only_named(tmp_path: Path) -> None:
    for function in (json.dumps, len):
        stage(tmp_path / function.__name__, function, [(({},), {})], [], [])
        assert (tmp_path / function.__name__ / "function.pkl").stat().st_size < 100


def call(_: object) -> None: ...


def test_here_a_function_stays_a_function_with_its_types() -> None:
    @forge.job(gpus=1)
    def double(number: int) -> int:
        """Double it."""
        return 2 * number

    here: int = double(2)
    assert (here, double.__name__, double.__doc__) == (4, "double", "Double it.")
    assert double.options(gpus=2, name="x").spec == {"gpus": 2, "name": "x"}


def wrongly_typed() -> None:
    """Show that what is wrong does not pass the type checker."""

    @forge.job(gpus=1)
    def double(number: int) -> int:
        return 2 * number

    double.submit("2")  # type: ignore[arg-type]
    text: str = double.submit(2).result()  # type: ignore[assignment]
    forge.job(gpu=1)  # type: ignore[call-overload]
    print(text)  # noqa: T201
