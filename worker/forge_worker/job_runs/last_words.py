"""The last words of a failed job: the part of its output that its end quotes, and what it lacked.

The first line is the summary that tables show; the last lines follow unchanged.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice, takewhile
from pathlib import Path, PurePosixPath
from signal import Signals
from typing import Any

from forge_schema.model.lease import NAMES_RANK

from forge_worker.attempt import Redactor
from forge_worker.files.safe_files import opened
from forge_worker.prepare.pip_install import INSTALLED
from forge_worker.prepare.provisions import project_of, scripts, table
from forge_worker.runners.runner import SIGNAL_BASE, Exit

LINES, WIDTH, BYTES = 10, 300, 32 << 10
NOTE = "forge: "
TRACEBACK = "Traceback (most recent call last):"
# Colours, cursor moves and other characters that a terminal would not show.
UNSHOWN = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*\x07?|[\x00-\x08\x0b-\x1f\x7f]")
# A Python program that exits with its child's return code, as DeepSpeed's launcher does, exits with
# this less the signal that killed the child.
NEGATIVE = 256
# What torchrun says at its end, and accelerate through it, about the process that failed first.
ROOT_CAUSE = "Root Cause (first observed failure):"
RANK = re.compile(r" +rank +: (\d+) \(local_rank: \d+\)")
EXIT_CODE = re.compile(r" +exitcode +: (-?\d+) \(pid: \d+\)")
# Its first words about that; the lines before are the program's.
NOTICED = re.compile(r"failed \(exitcode: -?\d+\) local_rank: |Sending process \d+ closing signal ")
# What accelerate says without GPUs, and any program that runs another.
CHILD_FAILED = "subprocess.CalledProcessError: "
# What DeepSpeed's launcher says about the end of the processes that it started.
OF_DEEPSPEED = re.compile(r"\[[-\d :,]+\] \[\w+\] \[launch\.py:\d+:")
# How PyTorch marks the tracebacks of processes that know each other.
MARK = re.compile(r"\[rank(\d+)\]: ?")
# The end of pytest's report, with or without a frame, and what it says of the first test before it.
COUNTS = re.compile(r"(?:=+ )?(\d+ (?:failed|errors?)\b.*?) in [\d.]+s(?: \([\d:]+\))?(?: =+)?")
FRAME = re.compile(r"={3,} (.*\w.*?) ={3,}")
NOT_PASSED = re.compile(r"(?:FAILED|ERROR) (\S+(?: - .+)?)")
DEADLY = ("SIGILL", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGSEGV", "SIGTERM")

MODULE = re.compile(
    r"(?:\S*python\S*: Error while finding module specification for .* \()?"
    r"(?:ModuleNotFoundError|\S*python\S*): No module named '?(\w+)"
)
# In the words of a worker, of Docker, and of shells.
PROGRAM = re.compile(
    r"(?:exec: |.*\bexec: )?\"?([\w.+-]+)\"?: (?:not found$|executable file not found)"
    r"|\S*sh: (?:line )?(?:\d+: )?([\w.+-]+): (?:command )?not found$"
    r"|.*exec: \"([\w.+-]+)\": executable file not found"
)
# Of a file that is there, they say it of its interpreter.
MISSING = re.compile(r"(?:not found|No such file or directory)$")
# They run a command in an environment that they make; the job has one already.
RUN = ("uv", "poetry", "pdm", "pipenv", "hatch", "pixi")
# In the words of docker-init and of Podman's init, which start a container's shell.
SHELL = re.compile(r".*(?:exec /bin/sh failed|failed to exec pid1): (.+)")
LIBRARY = re.compile(r"ImportError: (lib[^\s:]+\.so[^\s:]*): cannot open shared object file")
# Modules whose package has another name.
PACKAGES = {
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "Crypto": "pycryptodome",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "git": "gitpython",
    "jwt": "pyjwt",
    "OpenSSL": "pyopenssl",
    "pkg_resources": "setuptools",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
ADDING = {"uv.lock": "`uv add {}`", "poetry.lock": "`poetry add {}`"}


def last_words(exited: Exit, log: Path, redactor: Redactor, *, below: Path) -> str:
    """Return why a job failed, quoted from its output."""
    lines = _lines(_tail(log, redactor), {f"{below}/", f"{below.resolve()}/"})
    gist = _childs(lines) or _tested(lines) or _gist(lines[-LINES:])
    killed = _killed(exited.code)
    words = f"{killed}; last output: {gist}" if killed and gist else killed or gist
    words = _rank(lines) or _root_cause(lines) or words
    first = "; ".join(filter(None, [words, exited.detail])) or "no output"
    return "\n".join([first, *lines[-LINES:]] if lines[1:] else [first])


def _rank(lines: list[str]) -> str:
    """Return which rank failed first, and with which exception, if a launcher said so at the end.

    The launcher's own words about it may be longer than what is quoted.
    """
    named = next((line for line in lines[-LINES:] if NAMES_RANK.match(line)), "")
    raised = _raised(lines) if named else ""
    return f"{named}; last output: {raised}" if raised else named


def _root_cause(lines: list[str]) -> str:
    """Return how the process ended that failed first, if torchrun said so; else an empty text.

    Its exception is quoted: by it the queue knows whether another machine failed before.
    """
    summary = lines[len(lines) - lines[::-1].index(ROOT_CAUSE) :] if ROOT_CAUSE in lines else []
    rank = next((match[1] for line in summary if (match := RANK.match(line))), None)
    code = next((int(match[1]) for line in summary if (match := EXIT_CODE.match(line))), None)
    if rank is None or code is None:
        return ""
    own = list(takewhile(lambda line: not NOTICED.search(line), lines))
    marked = [line for line in own if MARK.match(line)]
    of_rank = [line for line in marked if line.startswith(f"[rank{rank}]: ")]
    output = _raised(of_rank) if marked else _gist(own[-LINES:])
    how = f"was {_killed(SIGNAL_BASE - code)}" if code < 0 else f"exited with code {code}"
    cause = f"the process of rank {rank} {how}"
    return f"{cause}; last output: {output}" if output else cause


def _tail(log: Path, redactor: Redactor) -> str:
    data = b""
    with suppress(OSError), log.open("rb") as file:
        begin = max(0, file.seek(0, 2) - BYTES - redactor.reach)
        file.seek(begin)
        # A secret that is cut off at the start would not be recognised, so read more and drop it.
        data = redactor.cover(file.read())[redactor.reach if begin else 0 :]
    return data.decode(errors="replace")


def _lines(text: str, below: set[str]) -> list[str]:
    """Return the job's lines that are not blank; if there are none, the worker's last note."""
    _, _, text = text.rpartition(f"{NOTE}{INSTALLED}\n")
    shown = (_shown(line, below) for line in text.split("\n"))
    lines = [line[:WIDTH] for line in shown if line]
    own = [line for line in lines if not line.startswith(NOTE)]
    return own or [line.removeprefix(NOTE) for line in lines[-1:]]


def _shown(line: str, below: set[str]) -> str:
    """Return what a terminal would finally have shown: a progress bar overwrites itself."""
    shown = UNSHOWN.sub("", line.rstrip("\r").rpartition("\r")[2]).rstrip()
    for folder in below:
        shown = shown.replace(folder, "")
    return shown


def _gist(lines: list[str]) -> str:
    """Return the most telling line: the exception of the last traceback, else the last line.

    Lines without a letter or a digit are passed over: mpirun frames its messages with dashes. The
    frame of a line, as of pytest's, is left out.
    """
    own = [line for line in lines if not OF_DEEPSPEED.match(line)] or lines
    worded = [line for line in own if any(map(str.isalnum, line))] or own
    return _raised(own) or (FRAME.sub(r"\1", MARK.sub("", worded[-1], count=1)) if worded else "")


def _tested(lines: list[str]) -> str:
    """Return how many tests failed and which came first, if pytest said so at the end; else "".

    Not how long they took, which no two runs have in common.
    """
    if not lines or not (counts := COUNTS.fullmatch(lines[-1])):
        return ""
    failed = (match[1] for line in lines if (match := NOT_PASSED.fullmatch(line)))
    return ": ".join([counts[1], *islice(failed, 1)])


def _childs(lines: list[str]) -> str:
    """Return the exception of a child, if the last one is that a child failed; else ""."""
    if not _gist(lines[-LINES:]).startswith(CHILD_FAILED) or TRACEBACK not in lines:
        return ""
    return _raised(lines[: -1 - lines[::-1].index(TRACEBACK)])


def _raised(lines: list[str]) -> str:
    """Return the exception of the last traceback, or an empty text."""
    lines = [unmarked for line in lines if (unmarked := MARK.sub("", line, count=1))]
    last = max((n for n, line in enumerate(lines) if line == TRACEBACK), default=len(lines))
    return next((line for line in lines[last + 1 :] if not line[0].isspace()), "")


def _killed(code: int | None) -> str:
    if code is None or code <= SIGNAL_BASE:
        return ""
    with suppress(ValueError):
        return f"killed by {Signals(code - SIGNAL_BASE).name}"
    name = next((name for name in DEADLY if code == NEGATIVE - Signals[name]), "")
    return f"a process was killed by {name} (exit code {code - NEGATIVE})" if name else ""


def lacks(error: str, spec: Mapping[str, Any], work: Path) -> str | None:
    """Return what a job lacks and what to do, from the last line of its traceback."""
    # Before it may stand how the job was killed, or which rank failed.
    error = error.rpartition("; last output: ")[2]
    command = spec.get("command") or [""]
    if found := _lacked_by_image(error) or _unstarted(command[0], work, error):
        return found
    if program := PROGRAM.match(error):
        return _no_program(next(filter(None, program.groups())), work)
    match = MODULE.match(error)
    module = match[1] if match else ""
    if not module or _exists(work, module):
        return None
    if _exists(work / "src", module):
        return f"{module} is in the project's folder src: submit with --env PYTHONPATH=src"
    return _not_installed(PACKAGES.get(module, module), spec, work)


def _exists(folder: Path, module: str) -> bool:
    return (folder / module).is_dir() or (folder / f"{module}.py").is_file()


def _not_installed(package: str, spec: Mapping[str, Any], work: Path) -> str:
    listed = spec.get("requirements")
    source = (spec.get("environment") or {}).get("source") or listed
    if not source:
        has = "the image" if spec.get("image") else "the worker's Python"
        return f"{package} is not in {has}: name it in a requirements.txt and submit again"
    if source.startswith("the active"):
        return f"{package} is not in {source}: install it there and submit again"
    if part := _part_with(package, work):
        kind, name = part
        return f"{package} is in the {kind} {name} of the project: submit with --{kind} {name}"
    how = ADDING.get(PurePosixPath(source).name, "add it there").format(package)
    return f"{package} is not in {source}: {how} and submit again"


def _part_with(package: str, work: Path) -> tuple[str, str] | None:
    """Return the extra or group of the project that a package is in: its kind and its name."""
    project = project_of(work)
    parts = (("extra", ("project", "optional-dependencies")), ("group", ("dependency-groups",)))
    for kind, keys in parts:
        for name, lines in table(project, *keys).items():
            listed = lines if isinstance(lines, list) else []
            if any(_named(str(line)) == _named(package) for line in listed):
                return kind, name
    return None


def _named(requirement: str) -> str:
    match = re.match(r"[\w.-]+", requirement)
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else ""


def _lacked_by_image(error: str) -> str | None:
    if library := LIBRARY.match(error):
        return f"the job has no {library[1]}: use an image that has it (--image)"
    if shell := SHELL.match(error):
        wrong = "is for other processors" if "format" in shell[1] else "has no /bin/sh"
        return f"the image {wrong}, so no job can start in it: use another one (--image)"
    return None


def _unstarted(name: str, work: Path, error: str) -> str | None:
    """Return why the project's script that is the command cannot start, by its first line."""
    if "/" not in name or ".." in name:
        return None
    try:
        with opened(work, name) as file:
            first = file.read(WIDTH).partition(b"\n")[0].decode(errors="replace")
    except OSError:
        return None
    if not first.startswith("#!"):
        return None
    if first.endswith("\r"):
        return f"{name} has the line ends of Windows: save it with those of Unix (LF)"
    if MISSING.search(error):
        return f"{name} is there, but not the program that its first line names: {first}"
    return None


def _no_program(name: str, work: Path) -> str | None:
    """Return what to do about a program that is not there; None if nobody knows."""
    if name in RUN:
        return f"{name} is not there, and its packages are: submit the command without `{name} run`"
    if (module := scripts(work).get(name)) is None:
        return None
    return (
        f"{name} is a script of the project, which is not installed itself:"
        f" run `python -m {module.partition(':')[0]}`"
    )
