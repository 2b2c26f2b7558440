"""The functions' zip by itself, and its handlers under AWS's own runtime client."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4
from zipfile import ZipFile

import pytest
from forge_schema.access.api_keys import Keys
from forge_schema.access.worker_tokens import WorkerTokens
from forge_schema.database.current import is_current
from forge_schema.model.states import Role
from packaging.requirements import Requirement
from support.cloud import lambda_zip
from support.cloud.gateway_events import http_event, scheduled_event
from support.cloud.runtime_api import Failed, RuntimeApi, function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from support.queue.rig import Rig

HANDLERS = ("submit", "admin", "workers", "dashboard", "sweep", "enrol", "scale", "setup")
# Lambda's limits in bytes: for a direct upload, and unpacked.
LARGEST_ZIP, LARGEST_TREE = 50_000_000, 262_144_000
SECRET = "0123456789abcdef" * 4

Start: TypeAlias = "Callable[[str], AbstractContextManager[RuntimeApi]]"


@pytest.fixture(scope="session")
def code(run_folder: Path) -> Path:
    """The unpacked zip."""
    return lambda_zip.unpacked(run_folder)


def contents(archive: ZipFile) -> dict[str, tuple[object, ...]]:
    """Return what is known of each entry, in the order of the archive."""
    return {
        one.filename: (one.date_time, one.external_attr, one.compress_size, one.CRC)
        for one in archive.infolist()
    }


def test_the_same_tree_gives_the_same_bytes(code: Path, run_folder: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.zip"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    said = lambda_zip.build_a_part(again, TMPDIR=str(elsewhere), PYTHONHASHSEED="7")
    assert code.is_dir()
    assert re.search(r"again\.zip: \d+\.\d MB, \d+\.\d MB unpacked", said)
    with ZipFile(run_folder / "lambda.zip") as whole, ZipFile(again) as part:
        first, second = contents(whole), contents(part)
    packages = {name.partition("/")[0] for name in second}
    assert packages > {"forge_functions", "forge_schema", "jinja2"}
    assert list(second.items()) == [one for one in first.items() if one[0] in second]


def test_lambda_takes_it(code: Path, run_folder: Path) -> None:
    assert (run_folder / "lambda.zip").stat().st_size < LARGEST_ZIP
    files = [path for path in code.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < LARGEST_TREE


def test_it_holds_nothing_but_what_runs(code: Path, run_folder: Path) -> None:
    assert not (code / "forge_worker").exists()
    assert not (code / "forge_client").exists()
    assert not [path for path in code.rglob("*") if path.name in {"tests", "RECORD"}]
    machine = str(lambda_zip.ROOT).encode()
    with ZipFile(run_folder / "lambda.zip") as archive:
        for entry in archive.infolist():
            assert machine not in archive.read(entry), f"{entry.filename} names this machine"
            assert entry.external_attr >> 16 & 0o444 == 0o444, "another user runs it"


def test_bytecode_is_ready_for_every_module(code: Path) -> None:
    for source in code.rglob("*.py"):
        compiled = source.parent / "__pycache__" / f"{source.stem}.cpython-311.pyc"
        assert compiled.exists(), f"{source} would be compiled at every cold start"


def test_the_handlers_are_imported_from_the_zip_alone(code: Path) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(code)!r})\n"
        f"from forge_functions.handlers import {', '.join(HANDLERS)}\n"
        f"assert all(callable(one.handler) for one in ({', '.join(HANDLERS)}))\n"
        # Whatever is not the interpreter's own came from the zip.
        "bad = [m.__file__ for m in sys.modules.values() if 'site-packages' in str("
        "getattr(m, '__file__', ''))]\n"
        "assert not bad, bad\n"
    )
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script],
        env=settings("postgresql://nobody@127.0.0.1:1/none", code),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


def test_whatever_our_code_imports_is_in_it(code: Path) -> None:
    lacking = {
        f"{path.relative_to(code)}: {name}"
        for package in ("forge_functions", "forge_schema")
        for path in (code / package).rglob("*.py")
        for name in imported(ast.parse(path.read_text(encoding="utf-8")))
        # A process of its own reads Parquet, and a page says so where it cannot; and zstd is in
        # the standard library of 3.14 alone.
        if not there(code, name) and name.partition(".")[0] not in {"pyarrow", "compression"}
    }
    assert not lacking


def test_whatever_a_library_in_it_requires_is_in_it(code: Path) -> None:
    installed = {d.name.lower().replace("_", "-"): d for d in distributions(path=[str(code)])}
    # The imports of our own code say what it needs; cffi compiles nothing on Lambda.
    needs = {name: d.requires or [] for name, d in installed.items() if name != "forge-queue"}
    needs["cffi"] = []
    lacking = {
        f"{name}: {requirement.name}"
        for name, required in needs.items()
        for requirement in map(Requirement, required)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if requirement.name.lower().replace("_", "-") not in installed
    }
    assert len(needs) > 20
    assert not lacking


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield every module that code imports at run time, also inside functions."""
    if isinstance(tree, ast.If) and ast.unparse(tree.test).endswith("TYPE_CHECKING"):
        return
    match tree:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=str(module), names=names):
            yield module
            if module.startswith("forge_"):
                yield from (f"{module}.{alias.name}" for alias in names)
    for child in ast.iter_child_nodes(tree):
        yield from imported(child)


def there(code: Path, module: str) -> bool:
    """Tell whether a module is in the zip, or the name is not a module's."""
    head = module.partition(".")[0]
    if head in sys.stdlib_module_names:
        return True
    if not head.startswith("forge_"):
        return any(code.glob(f"{head}/")) or any(code.glob(f"{head}.*"))
    source = lambda_zip.ROOT / ("schema" if head == "forge_schema" else "lambda")
    path = module.replace(".", "/")
    is_module = (source / path).is_dir() or (source / f"{path}.py").is_file()
    return not is_module or (code / path).is_dir() or (code / f"{path}.py").is_file()


def settings(database_url: str, folder: Path) -> dict[str, str]:
    return {
        "FORGE_DATABASE_URL": database_url,
        "FORGE_STORE_URL": (folder / "store").as_uri(),
        "FORGE_SERVER_SECRET": SECRET,
        # Hours that a test adds to the clock are not an outage.
        "FORGE_SWEEP_S": "86400",
    }


@pytest.fixture
def start(code: Path, rig: Rig, tmp_path: Path) -> Start:
    """Start a handler in a process of its own, on the rig's database."""
    (tmp_path / "store").mkdir()

    def started(handler: str) -> AbstractContextManager[RuntimeApi]:
        name = f"forge_functions.handlers.{handler}.handler"
        return function(name, code, tmp_path, **settings(rig.url, tmp_path))

    return started


def said(answer: Any, status: int = 200) -> Any:  # noqa: ANN401  any JSON
    """Return the body of an answer that has this status."""
    assert answer["statusCode"] == status, answer
    assert answer["headers"]["content-type"] == "application/json"
    return json.loads(answer["body"])


def test_a_function_tells_how_it_stands(start: Start) -> None:
    with start("submit") as submit:
        healthy = said(submit.invoke(http_event("GET", "/health")))
        described = said(submit.invoke(http_event("GET", "/openapi.json")))
    assert healthy["status"] == "ok"
    assert "/api/v1/queue/submit" in described["paths"]


def test_a_job_passes_through_the_functions(start: Start, rig: Rig) -> None:
    _, key = Keys(rig.database, actor="user:root").create("ann", Role.SUBMITTER)
    _, token = WorkerTokens(rig.database, actor="user:root").create("w1")
    bearer, worker = {"Authorization": f"Bearer {key}"}, {"X-Worker-Token": token}
    boot = {"boot_id": str(uuid4())}
    room = {"cpus": 4, "memory_mb": 8192, "disk_mb": 40_000}
    with start("submit") as submit, start("workers") as workers, start("sweep") as sweep:
        jobs = {"jobs": [{"name": "j", "command": ["true"], "image": "busybox"}] * 2}
        asked = http_event("POST", "/api/v1/queue/submit", jobs, headers=bearer, encoded=True)
        first, second = said(submit.invoke(asked))["job_ids"]

        def tell(path: str, body: Mapping[str, object]) -> Any:  # noqa: ANN401  any JSON
            event = http_event("POST", f"/api/v1/workers/{path}", {**boot, **body}, headers=worker)
            return said(workers.invoke(event))

        assert tell("register", room)["name"] == "w1"
        (granted,) = tell("claim", {"free": room})["grants"]
        assert granted["job_id"] == first
        lease = {name: granted[name] for name in ("job_id", "token", "nonce")}
        assert tell("heartbeat", {"leases": [lease], "status": "busy"})["standings"]
        tell("claim", {"free": room, "ends": [lease]})
        listed = http_event("GET", f"/api/v1/queue/jobs/{first}", headers=bearer)
        assert said(submit.invoke(listed))["state"] == "succeeded"

        assert rig.places(second) == ["lease"]
        rig.expire()
        assert sweep.invoke(scheduled_event())["requeued"] == 1
        assert rig.places(second) == ["ready"]


def test_the_database_is_migrated_from_the_zip_alone(
    code: Path, empty_database_url: str, tmp_path: Path
) -> None:
    name = "forge_functions.handlers.setup.handler"
    with function(name, code, tmp_path, **settings(empty_database_url, tmp_path)) as setup:
        event = {"StackId": "s", "RequestId": "r", "LogicalResourceId": "Migration"}
        # Nobody takes the answer, so that the invocation fails after the migration.
        address = {"RequestType": "Create", "ResponseURL": "http://127.0.0.1:1/"}
        with pytest.raises(Failed, match="ConnectError"):
            setup.invoke({**event, **address})
        assert is_current(empty_database_url)
        assert setup.invoke({"owner": "me"})["key"].startswith("fgk_")


def test_a_function_that_meets_a_stranger_answers_and_lives_on(start: Start) -> None:
    with start("admin") as admin:
        refused = said(admin.invoke(http_event("GET", "/api/v1/admin/workers")), 401)
        again = said(admin.invoke(http_event("GET", "/api/v1/admin/nothing")), 404)
    assert (refused["code"], again["code"]) == ("unauthenticated", "not_found")


def test_a_tick_without_a_database_fails_for_all_to_see(code: Path, tmp_path: Path) -> None:
    nowhere = settings("postgresql://nobody@127.0.0.1:1/none", tmp_path)
    name = "forge_functions.handlers.sweep.handler"
    with (
        function(name, code, tmp_path, **nowhere) as sweep,
        pytest.raises(Failed, match="DatabaseUnreachable"),
    ):
        sweep.invoke(scheduled_event())
