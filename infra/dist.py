"""Build the wheel and the sdist into dist/, and try the wheel in an empty environment: `make dist`.

The wheel is built from the sdist, so both are complete. The trial starts a whole Forge from what is
installed, and runs a job.
"""  # noqa: INP001 - a script, not a package

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from forge_client.tunnel import free_port

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
# Archives carry this time instead of the hour, so the same tree gives the same bytes.
EPOCH = {"SOURCE_DATE_EPOCH": "315532800"}
SAID = "hello from the wheel"


def main() -> None:
    """Build both, try the wheel, and print their sizes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=DIST, help="folder for both; default: dist")
    parser.add_argument(
        "--packages", type=Path, help="site-packages of an environment that has the dependencies"
    )
    given = parser.parse_args()
    wheel, sdist = build(given.output)
    with tempfile.TemporaryDirectory(prefix="forge-dist-") as folder:
        attempt(wheel, Path(folder), given.packages)
    for made in (wheel, sdist):
        sys.stdout.write(f"{made}: {made.stat().st_size / 1e6:.1f} MB\n")


def build(output: Path) -> tuple[Path, Path]:
    """Build the sdist, and from it the wheel; return the wheel and the sdist."""
    output.mkdir(parents=True, exist_ok=True)
    for former in (*output.glob("forge_queue-*.whl"), *output.glob("forge_queue-*.tar.gz")):
        former.unlink()
    # Without isolation: the pinned hatchling of this environment, and nothing is downloaded.
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(output), str(ROOT)]
    done = subprocess.run(  # noqa: S603 - our own arguments
        words, env={**os.environ, **EPOCH}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"dist: the build failed:\n{done.stdout}{done.stderr}")
    (wheel,) = output.glob("forge_queue-*.whl")
    (sdist,) = output.glob("forge_queue-*.tar.gz")
    return wheel, sdist


def attempt(wheel: Path, folder: Path, packages: Path | None) -> None:
    """Install the wheel into an empty environment, and run a job there."""
    # As root, Postgres runs as another user, who must reach its folder.
    folder.chmod(0o755)
    programs = install(wheel, folder / "environment", packages)
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
            sys.exit(f"dist: {program} {' '.join(words)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    version = call("forge", "--version")
    # The one program that `forge up` does not start.
    call("forge-sweeper", "--help")
    call("forge", "up", "--detach", "--port", str(free_port()))
    try:
        call("forge", "submit", ".", "--", "python", "main.py")
        said = call("forge", "logs", "-f", "1")
    finally:
        call("forge", "down")
    if SAID not in said:
        sys.exit(f"dist: the job printed something else: {said!r}")
    sys.stdout.write(f"{version.strip()}: installed, and ran a job\n")


def install(wheel: Path, place: Path, packages: Path | None) -> Path:
    """Install the wheel with everything it needs, or without if `packages` has that."""
    subprocess.run(  # noqa: S603 - our own arguments
        [sys.executable, "-m", "venv", "--without-pip", place], check=True
    )
    wanted = [str(wheel), "--no-deps", "--no-index"] if packages else [f"{wheel}[all]"]
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run(  # noqa: S603 - as above
        [*pip, "--python", str(place / "bin" / "python"), "install", *wanted], check=True
    )
    return place / "bin"


if __name__ == "__main__":
    main()
