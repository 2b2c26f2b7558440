"""Build the sdist and the wheel."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Archives carry this time instead of the hour, so the same tree gives the same bytes.
EPOCH = {"SOURCE_DATE_EPOCH": "315532800"}


def say(line: object) -> None:
    """Print a line at once, as the next one may take minutes."""
    print(line, flush=True)  # noqa: T201 - what the caller waits for


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


def works(*words: str) -> bool:
    """Tell whether a program is there and succeeds."""
    try:
        return not subprocess.run(words, capture_output=True, check=False).returncode  # noqa: S603 - our own arguments
    except OSError:
        return False


def call(*words: str | Path, env: dict[str, str] | None = None) -> str:
    """Run a program and return what it printed, or end with that if it fails."""
    done = subprocess.run(  # noqa: S603 - our own arguments
        [str(word) for word in words],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        line = " ".join(map(str, words))
        sys.exit(f"release: this failed: {line}\n{done.stdout}{done.stderr}")
    return done.stdout
