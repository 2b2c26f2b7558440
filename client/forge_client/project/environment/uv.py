"""Run uv on the submitter's machine, to resolve a list of packages to a lock."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from forge_schema.model.bundles import uv_variables
from forge_schema.model.quantities import duration_text

from forge_client.project.environment.names import Picked

LIMIT_S = 120
MOST = 300
# What uv draws around its words.
FRAME = re.compile(r"[^\x21-\x7e]+")
ABSENT = re.compile(r"Because (\S+) was not found in the package registry")
CALM = {
    "NO_COLOR": "1",
    "UV_NO_PROGRESS": "1",
    "UV_PYTHON_DOWNLOADS": "never",
    "UV_SYSTEM_CERTS": "1",
}
PYTHON = "interpreter"
STALE = "needs to be updated"
MISSING = "uv is not installed here: pip install uv"


class NotLocked(Exception):
    """There is no lock, for a reason that the user may want to know."""


@dataclass(frozen=True)
class Uv:
    """The uv program of this Python, or else the one on the PATH."""

    program: str

    @classmethod
    def here(cls) -> "Uv":
        """Return it; `NotLocked` if there is none."""
        beside = Path(sys.executable).with_name("uv")
        path = str(beside) if find_spec("uv") and beside.is_file() else shutil.which("uv")
        if not path:
            raise NotLocked(MISSING)
        return cls(path)

    def says(self, *words: str, folder: Path, stdin: str = "") -> str:
        """Run uv in a project's folder and return what it prints; `NotLocked` if it failed."""
        try:
            done = subprocess.run(  # noqa: S603 - the words are ours
                (self.program, *words),
                cwd=folder,
                input=stdin,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
                env={**uv_variables(os.environ), **CALM, **os.environ},
            )
        except subprocess.TimeoutExpired as error:
            raise NotLocked(f"uv took longer than {duration_text(LIMIT_S)}") from error
        except OSError as error:
            raise NotLocked(f"uv cannot be started: {error.strerror}") from error
        if done.returncode != 0:
            raise NotLocked(_reason(done.stderr))
        return done.stdout


def _reason(output: str) -> str:
    lines = [FRAME.sub(" ", line).strip() for line in output.splitlines()]
    kept = [line for line in lines if line and not line.startswith(("warning:", "Using ", "hint:"))]
    text = " ".join(kept).removeprefix("error: ") or "no output"
    return f"uv: {text[:MOST]}"


def compiled(folder: Path, file: str | None, text: str, python: str, picked: Picked) -> str:
    """Return what a list of packages amounts to: all with their versions and digests.

    Args:
        folder: the project's.
        file: the path in it of a requirements file, a pyproject.toml or a script.
        text: more requirements.
        python: the least version of Python that they must fit, such as `3.11`.
        picked: the extras and groups of a pyproject.toml.

    Raises:
        NotLocked: uv is missing or failed.
    """
    lists = [*([file] if file else []), *([] if file and not text else ["-"])]
    words = (
        *("pip", "compile", "--universal", "--generate-hashes", "--python-version", python),
        *("--no-header", "--no-annotate", "--quiet", *_picked(picked), *lists),
    )
    return Uv.here().says(*words, folder=folder, stdin=text)


def exported(folder: Path, picked: Picked, script: str = "", *, check: str = "--locked") -> str:
    """Return a project's uv.lock as requirements, or that of a script.

    Args:
        folder: the project's.
        picked: its extras and groups.
        script: the script's path in it.
        check: `--locked` refuses a lock that is out of date, `--frozen` takes it as it is, which
            needs neither a Python nor an index, and "" makes a new one.

    Raises:
        NotLocked: uv is missing or failed; `STALE` is in the message if the lock is out of date.
    """
    what = ("--script", script) if script else ("--no-emit-project",)
    groups = () if picked.whole or script else ("--no-dev",)
    words = ("export", "--format", "requirements-txt", *what, "--no-header")
    words += ("--no-annotate", "--quiet", *groups, *_picked(picked))
    words += (check,) if check else ("--python", sys.executable)
    try:
        return Uv.here().says(*words, folder=folder)
    except NotLocked as error:
        if PYTHON not in str(error) or not check:
            raise
        first = error
    # The job's Python need not be here, nor known to pyenv: any one tells whether a lock is stale.
    try:
        return Uv.here().says(*words, "--python", sys.executable, folder=folder)
    except NotLocked as error:
        raise (error if STALE in str(error) else first) from None


def _picked(picked: Picked) -> list[str]:
    named = (("--extra", picked.extras), ("--group", picked.groups))
    return [word for option, names in named for name in names for word in (option, name)]
