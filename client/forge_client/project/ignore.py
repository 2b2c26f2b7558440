"""What stays out of a bundle: `.gitignore` and `.forgeignore`, as git reads them."""

from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from forge_client.errors import ClientError

ALWAYS = frozenset({".git", ".venv", "__pycache__", ".forge"})
FILES = (".gitignore", ".forgeignore")  # the later one has the last word


def is_always_out(name: str) -> bool:
    """Tell whether the entry with this path below the root stays out whatever anybody says."""
    return name.rpartition("/")[2] in ALWAYS


@dataclass(frozen=True)
class Ignore:
    """The rules that hold inside one folder: its own before those of the folders above."""

    base: str = ""
    spec: GitIgnoreSpec | None = None
    above: "Ignore | None" = None

    def within(self, folder: Path, name: str) -> "Ignore":
        """Return the rules inside `folder`, whose path below the bundle's root is `name`.

        Raises:
            ClientError: an ignore file holds something that is not a pattern.
            OSError: an ignore file cannot be read.
        """
        lines = [line for file in FILES for line in _lines(folder / file)]
        if not lines:
            return self
        return Ignore(f"{name}/" if name else "", GitIgnoreSpec.from_lines(lines), self)

    def excludes(self, name: str, *, folder: bool) -> bool:
        """Tell whether the entry with this path below the root stays out."""
        asked = f"{name}/" if folder else name
        rules: Ignore | None = self
        while rules:
            if rules.spec:
                verdict = rules.spec.check_file(asked.removeprefix(rules.base)).include
                if verdict is not None:
                    return verdict
            rules = rules.above
        return False


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        return []
    text = path.read_text("utf-8-sig", errors="replace")
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    for number, line in enumerate(lines, start=1):
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError as error:
            raise ClientError(
                f"line {number} of {path} is not a pattern: {line!r}",
                hint="correct the line; the syntax is that of .gitignore",
                code="ignore_file_invalid",
            ) from error
    return lines
