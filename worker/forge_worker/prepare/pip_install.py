"""Install a project's requirements, in the image or process where its job runs.

uv installs locks: they leave it nothing to choose, and its cache makes it fast. Other lists are
pip's, which takes what an image has already.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from time import monotonic

from forge_schema.model.bundles import uv_variables
from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import duration_text

from forge_worker.attempt import LiveAttempt
from forge_worker.files.safe_files import remove_tree
from forge_worker.prepare.pip_program import pip_program
from forge_worker.prepare.provisions import ProvisionFailed
from forge_worker.prepare.requirements import Requirements
from forge_worker.runners.runner import OWNERS, Exit, Mount, Runner, RunSpec, StartFailed

LIMIT_S = 3600.0
WATCH_S = 0.2
TAIL_BYTES = 8192
LIST = "requirements.txt"
# Written behind the output of the installation, which is not the job's own.
INSTALLED = "the requirements are installed"
# Its words: Python, the environment, pip, the list, the versions of Python that will do, uv, and
# options for venv and for the installation.
SCRIPT = """
is() {
  program=$1; shift
  "$program" -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] not in sys.argv[1:])' \
    "$@" 2>/dev/null
}
python=$1 env=$2 pip=$3 list=$4 asked=$5 uv=$6 seen=$7 only=$8
versions=${asked%% (*} said=${asked##*(}
if [ -n "$asked" ] && ! is "$python" $versions; then
  found=
  for one in $versions; do
    if [ -n "$found" ]; then break; fi
    if is "python$one" "$one"; then found=python$one
    elif [ -n "$uv" ]; then
      # Such as one of uv's own, which is on no PATH.
      other=$("$uv" python find --no-project "$one" 2>/dev/null)
      if [ -n "$other" ] && is "$other" "$one"; then found=$other; fi
    fi
  done
  if [ -n "$found" ]; then python=$found
  else echo "forge: the project requires Python ${said%)}, and here is $("$python" -V)"; fi
fi
"$python" -m venv --without-pip $seen "$env" || exit
if [ -n "$uv" ]; then
  "$uv" pip install --python "$env/bin/python" --compile-bytecode $only -r "$list" && exit
  echo "forge: uv could not install it, so pip tries"
fi
exec "$env/bin/python" "$pip" install --disable-pip-version-check --no-input \
  --no-warn-script-location $only -r "$list"
"""
UV_PLACE = PurePosixPath("/forge/uv")
# Jobs may write to the cache, so an environment shares no file with it.
# A lock has decided where packages are; uv would ask the sources of one that it builds again, and
# refuse a member without its workspace, even where it is to install no dependencies.
UV = {
    "UV_LINK_MODE": "copy",
    "UV_NO_PROGRESS": "1",
    "UV_NO_SOURCES": "1",
    "UV_PYTHON_DOWNLOADS": "never",
}
# The worker's variables that say where packages are; the job's own take precedence.
OPERATORS = (
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_NO_INDEX"),
    *("PIP_DEFAULT_TIMEOUT", "PIP_RETRIES", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "no_proxy"),
)
NO_VERSIONS, OTHER_PYTHON = "(from versions: none)", "that require a different python version"
UNREACHED = re.compile(
    r"NewConnectionError|Failed to establish a new connection|Could not fetch URL|ProxyError"
    r"|Name or service not known|Temporary failure in name resolution|Network is unreachable"
    r"|Connection refused|Connection reset|ConnectTimeout|ReadTimeout|Read timed out"
)


def uv_program() -> Mount | None:
    """Return the uv of the worker's Python, or else the one on its PATH; None if there is none."""
    beside = Path(sys.executable).with_name("uv")
    path = str(beside) if beside.is_file() else shutil.which("uv")
    return Mount(Path(path).resolve(), UV_PLACE) if path else None


def install(
    wanted: Requirements,
    env: Mount,
    *,
    spec: RunSpec,
    attempt: LiveAttempt,
    runner: Runner,
    open_to_host: bool,
) -> None:
    """Build the environment in the empty folder `env`; all output goes to the job's log.

    With `open_to_host`, the packages of the surrounding Python are visible in it.

    Raises:
        ProvisionFailed: the installation failed, or took too long.
        StartFailed: this machine could not run it.
        Stopped: the attempt must stop.
    """
    attempt.note(f"installing the requirements in {wanted.path}")
    began = attempt.folders.log.stat().st_size
    with _room(attempt) as root:
        start = _start(wanted, env, spec, runner, root)
        seen = "--system-site-packages" if open_to_host else ""
        start = _with_uv(start, runner) if wanted.locked else _with(start, "")
        ended = _run(_with(start, seen, "--no-deps" if wanted.locked else ""), attempt, runner)
    if ended.code != 0:
        raise _failure(wanted.path, ended, _tail(attempt, began))
    attempt.note(INSTALLED)


@contextmanager
def _room(attempt: LiveAttempt) -> Iterator[Path]:
    """Yield folders for the installation, with a writable copy of the project."""

    def copied(source: str, target: str) -> str:
        attempt.while_wanted()
        return shutil.copy2(source, target)

    root = attempt.folders.root / "install"
    remove_tree(root)
    try:
        for name in ("output", "checkpoint", "control"):
            (root / name).mkdir(parents=True)
        # Links stay links: they lead to the copy, and following them might never end.
        shutil.copytree(attempt.folders.work, root / "work", symlinks=True, copy_function=copied)
        with attempt.weighed(root):
            yield root
    finally:
        remove_tree(root)


def _start(wanted: Requirements, env: Mount, spec: RunSpec, runner: Runner, root: Path) -> RunSpec:
    """Return the spec of pip's run: the job's own, with other folders and another command."""
    for name, text in wanted.files.items():
        if not name.endswith(".toml"):
            (root / "work" / name).write_text(text, encoding="utf-8")
    own = runner.on_host
    pip, program = pip_program(root, same_python=own)
    start = replace(
        spec,
        name=f"{spec.name}-install",
        # Without the token, it cannot be mistaken for the job itself.
        labels={
            **{n: spec.labels[n] for n in OWNERS if n in spec.labels},
            "forge.install": spec.name,
        },
        work_dir=root / "work",
        output_dir=root / "output",
        checkpoint_dir=root / "checkpoint",
        control_dir=root / "control",
        gpu_uuids=(),
        grace_s=0.0,
        mounts=(*spec.mounts, replace(env, writable=True, given=True), pip),
    )
    places = runner.paths(start)
    listed = wanted.path
    if listed.endswith(".toml"):
        (root / "control" / LIST).write_text(wanted.files[listed], encoding="utf-8")
        listed = str(places.control_dir / LIST)
    python = sys.executable if own else "python3"
    places_of = (str(runner.place(env)), str(runner.place(pip) / program))
    words = (python, *places_of, listed, wanted.python)
    variables = {n: os.environ[n] for n in OPERATORS if n in os.environ and n not in spec.env}
    return replace(
        start,
        command=("/bin/sh", "-c", SCRIPT, "sh", *words),
        # Files in /tmp would count as memory.
        env={**spec.env, "TMPDIR": str(places.output_dir)},
        secrets={**variables, **spec.secrets},
    )


def _with(start: RunSpec, *words: str) -> RunSpec:
    return replace(start, command=(*start.command, *words))


def _with_uv(start: RunSpec, runner: Runner) -> RunSpec:
    """Return the run with uv, if the worker has it."""
    uv = uv_program()
    if uv is None:
        return _with(start, "")
    variables = {**start.env, **start.secrets}
    own = runner.on_host
    environment = {
        **UV,
        **uv_variables(variables),
        # pip trusts the authorities of the machine; an image may have none.
        **({"UV_SYSTEM_CERTS": "1"} if own else {}),
        **({} if "UV_CACHE_DIR" in variables else {"UV_NO_CACHE": "1"}),
    }
    ours = {name: value for name, value in environment.items() if name not in variables}
    with_uv = replace(start, mounts=(*start.mounts, uv), secrets={**ours, **start.secrets})
    return _with(with_uv, str(runner.place(uv)))


def _run(start: RunSpec, attempt: LiveAttempt, runner: Runner) -> Exit:
    deadline = monotonic() + LIMIT_S
    handle = runner.start(start)
    try:
        while (ended := handle.wait(WATCH_S)) is None:
            attempt.while_wanted()
            if monotonic() > deadline:
                raise ProvisionFailed(f"the installation took longer than {duration_text(LIMIT_S)}")
    finally:
        handle.remove()
    return ended


def _tail(attempt: LiveAttempt, began: int) -> str:
    with attempt.folders.log.open("rb") as log:
        log.seek(max(began, attempt.folders.log.stat().st_size - TAIL_BYTES))
        return log.read().decode(errors="replace")


def _failure(path: str, ended: Exit, output: str) -> ForgeError:
    if ended.code is None:
        return StartFailed(f"the installation of {path} was lost: {ended.detail}")
    errors = [line.strip() for line in output.splitlines() if line.startswith("ERROR:")]
    # With versions for another Python, another worker may be able to.
    unknown = [] if OTHER_PYTHON in output else [error for error in errors if NO_VERSIONS in error]
    why = (unknown or errors or output.strip().splitlines() or ["no output"])[-1]
    if ended.oom_killed:
        why = "it ran out of the job's memory"
    elif UNREACHED.search(output):
        why = f"the network failed, or a package index could not be reached; {why}"
    failure = ProvisionFailed(
        f"installing {path} ended with exit code {ended.code}: {why}",
        hint="the job's log has all of pip's output",
    )
    failure.exit_code = ended.code
    return failure
