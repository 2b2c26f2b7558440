"""A trial of the wheel in an empty environment: a whole Forge runs a job; and its size there."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from building import say, works
from forge_client.tunnel import free_port
from uv import find_uv_bin

SAID = "hello from the wheel"
# Installed, without bytecode, in MB: the client alone, and everything.
LIMITS = {"": 45, "[all]": 250}


def pythons(versions: list[str]) -> Iterator[str]:
    """Yield a program for each version or path that can be had, and print which cannot."""
    for version in versions:
        if "/" in version:
            program, why_not = version, "no Python"
        else:
            program, why_not = f"python{version}", ""
            # One that is found may be a shim for a version that is not chosen.
            if not works(program, "-c", ""):
                program, why_not = _downloaded(version)
        if works(program, "-c", ""):
            yield program
        else:
            say(f"Python {version} is neither here nor downloaded ({why_not}): not tried")


def _downloaded(version: str) -> tuple[str, str]:
    """Return the path of a Python that uv keeps, or an empty one and the reason."""
    for words in (["install"], ["find", "--managed-python", "--no-project"]):
        done = subprocess.run(  # noqa: S603 - its own command
            [find_uv_bin(), "python", *words, version], capture_output=True, text=True, check=False
        )
        if done.returncode:
            # uv tells how it came to the failure; the last line is the failure.
            return "", done.stderr.strip().splitlines()[-1].strip().removeprefix("cause: ")
    return done.stdout.strip(), ""


def environment(folder: Path) -> Path:
    """Return where an attempt in this folder installs the wheel."""
    return folder / "environment"


def attempt(python: str, wheel: Path, folder: Path, packages: Path | None) -> None:
    """Install the wheel into an empty environment of a Python, and run a job there."""
    # As root, Postgres runs as another user, who must reach its folder.
    folder.chmod(0o755)
    programs = install(python, wheel, environment(folder), packages)
    project = folder / "project"
    project.mkdir()
    (project / "main.py").write_text(f"print({SAID!r})\n", encoding="utf-8")
    env = {name: value for name, value in os.environ.items() if not name.startswith("FORGE_")}
    env |= {f"XDG_{kind}_HOME": str(folder / kind) for kind in ("STATE", "DATA")}
    env |= {"FORGE_DIR": str(folder / "up"), "FORGE_RUNNER": "process"}
    if packages:
        # A plain path: the .pth files there, our editable install among them, are not read.
        env["PYTHONPATH"] = str(packages)

    def call(program: str, *words: str) -> str:
        done = subprocess.run(  # noqa: S603 - what was just installed
            [programs / program, *words],
            cwd=project,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"release: {program} {' '.join(words)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    version = call("forge", "--version").strip()
    # The one program that `forge up` does not start.
    call("forge-sweeper", "--help")
    call("forge", "up", "--detach", "--port", str(free_port()))
    try:
        call("forge", "submit", ".", "--", "python", "main.py")
        said = call("forge", "logs", "-f", "1")
    finally:
        call("forge", "down")
    if SAID not in said:
        sys.exit(f"release: the job printed something else: {said!r}")
    say(f"{version} with {call('python', '--version').strip()}: installed, ran a job")


def install(
    python: str, wheel: Path, place: Path, packages: Path | None, extra: str = "[all]"
) -> Path:
    """Install the wheel with everything it needs, or without if `packages` has that."""
    subprocess.run([python, "-m", "venv", "--without-pip", place], check=True)  # noqa: S603 - ours
    wanted = [str(wheel), "--no-deps", "--no-index"] if packages else [f"{wheel}{extra}"]
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run(  # noqa: S603 - as above
        [*pip, "--python", str(place / "bin" / "python"), "install", *wanted], check=True
    )
    return place / "bin"


def measure(wheel: Path) -> None:
    """Print how much an installation takes, and end if that is more than it may."""
    for extra, limit in LIMITS.items():
        with tempfile.TemporaryDirectory(prefix="forge-dist-") as folder:
            install(sys.executable, wheel, Path(folder), None, extra)
            files = [path for path in Path(folder).rglob("*") if not path.is_symlink()]
            sizes = [path.stat().st_size for path in files if path.suffix != ".pyc"]
        size = sum(sizes) / 1e6
        say(f"forge-queue{extra} takes {size:.0f} MB, without bytecode")
        if size > limit:
            sys.exit(f"release: forge-queue{extra} takes more than {limit} MB")
