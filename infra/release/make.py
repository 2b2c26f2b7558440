"""Make a release in dist/ and try it: `make dist`.

That is the sdist, the wheel made of it, completion for three shells, a manual page, images made of
the wheel, lists of the parts (SBOM), and notes of this version. Publishing is one upload of the
wheel and the sdist, and `docker load` and `docker push` of the images.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import archives
import images
import trial
from building import ROOT, build, call, say
from forge_client.cli.commands import app, children
from forge_client.errors import MEANINGS
from typer.main import get_command

# The names by which the shells find completion in their folders.
SHELLS = {"bash": "forge", "zsh": "_forge", "fish": "forge.fish"}
NAME = "forge \\- submit training jobs to a Forge queue, watch them, fetch their results"
SEE_ALSO = "The pages of the documentation, and \\fBforge help all\\fR."
# A part begins at its heading, `## [0.2.0] - 2026-11-28`, and ends at the next one.
PART = re.compile(
    r"^## \[(?P<version>[^\]]+)\][^\n]*\n(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL
)


def main() -> None:
    """Make everything, try it, and print the sizes."""
    given = options()
    wheel, sdist = build(given.output)
    write_completion(given.output / "completion")
    write_manual(given.output / "man")
    if given.tools:
        call(given.tools / "twine", "check", "--strict", wheel, sdist)
    try_wheel(wheel, given)
    files = [(wheel, ""), (sdist, "")]
    if given.images and (why_not := archives.obstacle(given.base)):
        say(f"no images: {why_not}")
    elif given.images:
        files += archives.made(wheel, given.output / "images", given.base, given.tools)
    write_notes(ROOT / "CHANGELOG.md", given.output, files)


def options() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="default: dist")
    parser.add_argument(
        "--packages", type=Path, help="site-packages of an environment that has the dependencies"
    )
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        help="a version, or a path, to try it with, if it is here or uv can download it",
    )
    parser.add_argument("--tools", type=Path, help="folder with twine and cyclonedx-py")
    parser.add_argument("--images", action="store_true", help="the images, too, as archives")
    parser.add_argument("--base", default=images.BASE, help=f"of images; default: {images.BASE}")
    return parser.parse_args()


def try_wheel(wheel: Path, given: argparse.Namespace) -> None:
    """Run a job with each Python, list the parts, and measure installations."""
    for python in list(trial.pythons(given.python)) or [sys.executable]:
        with tempfile.TemporaryDirectory(prefix="forge-dist-") as folder:
            trial.attempt(python, wheel, Path(folder), given.packages)
            if given.tools:
                environment = trial.environment(Path(folder))
                archives.of_environment(given.tools, environment, given.output / "sbom.cdx.json")
    if not given.packages:
        trial.measure(wheel)


def write_completion(folder: Path) -> None:
    """Write a script for each shell into its folder; `forge` finds the words."""
    for shell, name in SHELLS.items():
        file = folder / shell / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_script(shell), encoding="utf-8")
        say(file)


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


def write_notes(changelog: Path, output: Path, files: Iterable[tuple[Path, str]]) -> None:
    """Write the newest part of the changelog, and the files with their sizes."""
    part = PART.search(changelog.read_text(encoding="utf-8"))
    if part is None or not part["text"].strip():
        sys.exit(f"release: {changelog} has no part with text")
    lines = [f"# Forge {part['version']}", "", part["text"].strip(), "", "## Files", ""]
    for file, more in files:
        size = f"`{file.relative_to(output)}`: {file.stat().st_size / 1e6:.1f} MB"
        say(size)
        lines.append(f"- {size}. {more}".rstrip(". ") + ".")
    (output / "NOTES.md").write_text("\n".join([*lines, ""]), encoding="utf-8")


def write_manual(folder: Path) -> None:
    """Write the manual page, made of the help."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "forge.1"
    file.write_text("\n".join([*_page(get_command(app)), ""]), encoding="utf-8")
    say(file)


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


if __name__ == "__main__":
    main()
