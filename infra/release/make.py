"""Make a release in dist/ and try it: `make dist`.

That is the sdist, the wheel made of it, completion for three shells, a manual page, the notes of
this version, and a list of the parts (SBOM). Publishing is one upload of the wheel and the sdist.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import trial
from forge_client.cli.commands import app, children
from forge_client.errors import MEANINGS
from typer.main import get_command

ROOT = Path(__file__).resolve().parents[2]
# Archives carry this time instead of the hour, so the same tree gives the same bytes.
EPOCH = {"SOURCE_DATE_EPOCH": "315532800"}
# The names by which the shells find completion in their folders.
SHELLS = {"bash": "forge", "zsh": "_forge", "fish": "forge.fish"}
NAME = "forge \\- submit training jobs to a Forge queue, watch them, fetch their results"
SEE_ALSO = "The pages of the documentation, and \\fBforge help all\\fR."
# A part begins at its heading, `## [0.2.0] - 2026-11-28`, and ends at the next one.
PART = re.compile(
    r"^## \[(?P<version>[^\]]+)\][^\n]*\n(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL
)


def main() -> None:
    """Make everything, try the wheel, and print the sizes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="default: dist")
    parser.add_argument(
        "--packages", type=Path, help="site-packages of an environment that has the dependencies"
    )
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        help="a version to try it with, if it is here",
    )
    parser.add_argument("--tools", type=Path, help="folder with twine and cyclonedx-py")
    given = parser.parse_args()
    wheel, sdist = build(given.output)
    for made in (
        *write_completion(given.output / "completion"),
        write_manual(given.output / "man"),
        write_notes(ROOT / "CHANGELOG.md", given.output),
    ):
        sys.stdout.write(f"{made}\n")
    if given.tools:
        call(given.tools / "twine", "check", "--strict", wheel, sdist)
    for python in trial.found(given.python):
        with tempfile.TemporaryDirectory(prefix="forge-dist-") as folder:
            trial.attempt(python, wheel, Path(folder), given.packages)
            if given.tools:
                list_parts(given.tools, Path(folder), given.output / "sbom.cdx.json")
    if not given.packages:
        trial.measure(wheel)
    for archive in (wheel, sdist):
        sys.stdout.write(f"{archive}: {archive.stat().st_size / 1e6:.1f} MB\n")


def write_completion(folder: Path) -> Iterator[Path]:
    """Write a script for each shell into its folder, and yield it; `forge` finds the words."""
    for shell, name in SHELLS.items():
        file = folder / shell / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_script(shell), encoding="utf-8")
        yield file


def _script(shell: str) -> str:
    forge = Path(sys.executable).with_name("forge")
    done = subprocess.run(  # noqa: S603 - our own program
        [forge],
        env={**os.environ, "_FORGE_COMPLETE": f"source_{shell}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return f"{done.stdout.strip()}\n"


def write_notes(changelog: Path, output: Path) -> Path:
    """Write the newest part of the changelog into a file of the folder, and return it."""
    part = PART.search(changelog.read_text(encoding="utf-8"))
    if part is None or not part["text"].strip():
        sys.exit(f"dist: {changelog} has no part with text")
    file = output / "NOTES.md"
    file.write_text(f"# Forge {part['version']}\n\n{part['text'].strip()}\n", encoding="utf-8")
    return file


def write_manual(folder: Path) -> Path:
    """Write the manual page, made of the help, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "forge.1"
    file.write_text("\n".join([*_page(get_command(app)), ""]), encoding="utf-8")
    return file


def _page(command: Any) -> Iterator[str]:  # noqa: ANN401 - typer hides its click
    yield f'.TH FORGE 1 "" "Forge {version("forge-queue")}"'
    yield from (".SH NAME", NAME, ".SH SYNOPSIS", ".B forge", r"[\fIoptions\fR] \fIcommand\fR ...")
    yield from (".SH DESCRIPTION", *_paragraphs(command.help))
    yield from (".SH OPTIONS", *_options(command), ".SH COMMANDS")
    for child in children(command):
        yield from _section(f"forge {child.name}", child)
    yield ".SH EXIT STATUS"
    for code, meaning in MEANINGS.items():
        yield from (".TP", f"{code:d}", _text(meaning))
    yield from (".SH SEE ALSO", SEE_ALSO)


def _section(name: str, command: Any) -> Iterator[str]:  # noqa: ANN401 - as above
    words = [_word(param) for param in command.params if param.param_type_name == "argument"]
    yield f'.SS "{_text(" ".join([name, *words]))}"'
    yield from _paragraphs(command.help)
    yield from _options(command)
    for child in children(command):
        yield from _section(f"{name} {child.name}", child)


def _word(param: Any) -> str:  # noqa: ANN401 - as above
    word = param.name.upper() + ("..." if param.nargs != 1 else "")
    return word if param.required else f"[{word}]"


def _options(command: Any) -> Iterator[str]:  # noqa: ANN401 - as above
    for param in command.params:
        if getattr(param, "hidden", False) or not param.help:
            continue
        is_option = param.param_type_name == "option"
        names = [*param.opts, *param.secondary_opts] if is_option else [param.name.upper()]
        variable = f" Variable: {param.envvar}." if param.envvar else ""
        yield from (".TP", ", ".join(f"\\fB{_text(name)}\\fR" for name in names))
        yield _text(f"{param.help}{variable}")


def _paragraphs(text: str | None) -> Iterator[str]:
    for number, paragraph in enumerate((text or "").replace("\b", "").strip().split("\n\n")):
        if number:
            yield ".PP"
        yield _text(paragraph)


def _text(text: str) -> str:
    """Return text as roff has it; a line that begins with a dot or quote would be a request."""
    flat = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{flat}" if flat.startswith((".", "'")) else flat


def build(output: Path) -> tuple[Path, Path]:
    """Build the sdist, and from it the wheel; return the wheel and the sdist."""
    output.mkdir(parents=True, exist_ok=True)
    for former in (*output.glob("forge_queue-*.whl"), *output.glob("forge_queue-*.tar.gz")):
        former.unlink()
    # Without isolation: the pinned hatchling of this environment, and nothing is downloaded.
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", output, ROOT, env=EPOCH)
    (wheel,) = output.glob("forge_queue-*.whl")
    (sdist,) = output.glob("forge_queue-*.tar.gz")
    return wheel, sdist


def list_parts(tools: Path, folder: Path, sbom: Path) -> None:
    """Write what is installed with `[all]` as CycloneDX."""
    python = trial.environment(folder) / "bin" / "python"
    of_project = ("--pyproject", ROOT / "pyproject.toml", "--output-reproducible")
    call(tools / "cyclonedx-py", "environment", *of_project, "-o", sbom, python)
    sys.stdout.write(f"{sbom}\n")


def call(*words: str | Path, env: dict[str, str] | None = None) -> None:
    """Run a program, or end with what it printed."""
    done = subprocess.run(  # noqa: S603 - our own arguments
        [str(word) for word in words],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        line = " ".join(map(str, words))
        sys.exit(f"dist: this failed: {line}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
