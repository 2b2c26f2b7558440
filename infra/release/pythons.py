"""The Pythons with which a release is tried: those on PATH, and those that uv can download."""

import subprocess
from collections.abc import Iterator

from building import say
from uv import find_uv_bin


def found(versions: list[str]) -> Iterator[str]:
    """Yield a program for each version or path that can be had, and print which cannot."""
    for version in versions:
        if "/" in version:
            program, why_not = version, "no Python"
        else:
            program, why_not = f"python{version}", ""
            if not _runs(program):
                program, why_not = _downloaded(version)
        if _runs(program):
            yield program
        else:
            say(f"Python {version} is neither here nor downloaded ({why_not}): not tried")


def _runs(program: str) -> bool:
    # One that is found may be a shim for a version that is not chosen.
    try:
        return not subprocess.run([program, "-c", ""], capture_output=True, check=False).returncode  # noqa: S603 - a Python
    except OSError:
        return False


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
