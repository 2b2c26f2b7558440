"""Build the zip that the Lambda functions run from: `make lambda-zip`.

The same tree and the same pinned list give the same bytes.
"""  # noqa: INP001 - a script, not a package

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements" / "functions.txt"
DEFAULT_OUTPUT = ROOT / "build" / "forge-lambda.zip"
PLACE = "/var/task"

# `forge-server` uses the list too; what stays keeps its own requirements. boto3 stays, although the
# runtime has one: that one changes without notice, and requests must be signed as tested.
LEFT_OUT = frozenset(
    {
        # build backends
        *("editables", "hatchling", "packaging", "pathspec", "pluggy", "tomlkit"),
        "trove-classifiers",
        # only commands need these
        *("click", "markdown-it-py", "mdurl", "platformdirs", "pygments", "pyyaml"),
        *("rich", "shellingham", "typer"),
        # only new migrations are written with it
        "sqlmodel",
        # only the server process needs this
        "uvicorn",
        # compiles C
        "pycparser",
    }
)
# Our own modules that need the packages above, or that start programs.
MODULES_LEFT_OUT = (
    "forge_client",
    "forge_worker",
    "forge_functions/init",
    "forge_functions/program.py",
    "forge_functions/server.py",
    "forge_functions/middleware/slow_clients.py",
    "forge_functions/middleware/few_copies.py",
    "forge_functions/middleware/turns.py",
    "forge_schema/sweeper/sweeper.py",
    "forge_schema/sweeper/main.py",
    "forge_schema/database/tables",
)


@dataclass(frozen=True)
class Runtime:
    """A runtime of template.yaml: its Python, and the wheels that fit its glibc, best first."""

    python: str
    platforms: tuple[str, ...]


RUNTIMES = {
    # Amazon Linux 2 with glibc 2.26.
    "x86_64": Runtime(
        "3.11", ("manylinux_2_26_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
    ),
    # Amazon Linux 2023 with glibc 2.34, since psycopg's wheel for it needs 2.27.
    "arm64": Runtime(
        "3.12",
        tuple(
            f"{name}_aarch64"
            for name in ("manylinux_2_34", "manylinux_2_28", "manylinux_2_17", "manylinux2014")
        ),
    ),
}
# The only ones used of the hundreds of services that botocore describes.
SERVICES = {"autoscaling", "ec2", "s3"}
NOT_NEEDED = (
    *("bin", "boto3/examples", "**/tests", "**/*.pyi", "**/*.h", "**/py.typed"),
    "sqlalchemy/testing",
    *(f"sqlalchemy/dialects/{name}" for name in ("mssql", "mysql", "oracle", "sqlite")),
)
# Records of the installation differ from machine to machine.
OF_THE_INSTALLATION = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
# The authorities that sign databases' certificates; template.yaml names it as PGSSLROOTCERT.
AUTHORITIES = "database-ca.pem"
EPOCH = (1980, 1, 1, 0, 0, 0)
# Half the work of zlib's default, for 3 % more bytes.
LEVEL = 4


def main() -> None:
    """Build it and print its size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    parser.add_argument(
        "--ca", type=Path, help="authorities of the database, such as RDS's global-bundle.pem"
    )
    parser.add_argument(
        "--architecture", choices=RUNTIMES, default="x86_64", help="as the template's parameter"
    )
    given = parser.parse_args()
    output: Path = given.output
    runtime = RUNTIMES[given.architecture]
    if sys.version_info[:2] != tuple(map(int, runtime.python.split("."))):
        # Lambda could not use its bytecode.
        sys.exit(
            f"lambda-zip: run it with Python {runtime.python}, which is what the functions run on"
            f" (make lambda-zip PYTHON=python{runtime.python}, in a clone without .venv)"
        )
    with tempfile.TemporaryDirectory(prefix="forge-lambda-") as folder:
        tree = Path(folder, "tree")
        fill(tree, Path(folder), runtime)
        trust(tree, given.ca)
        unpacked = sum(file.stat().st_size for file in _files(tree))
        pack(tree, output)
    packed = output.stat().st_size
    digest = hashlib.sha256(output.read_bytes()).hexdigest()
    sys.stdout.write(
        f"{output}: {packed / 1e6:.1f} MB, {unpacked / 1e6:.1f} MB unpacked"
        f" (Lambda takes 50 and 262)\nsha256 {digest}\n"
    )


def fill(tree: Path, workplace: Path, runtime: Runtime) -> None:
    """Put everything that the functions need into a folder."""
    wanted = workplace / "requirements.txt"
    wanted.write_text(without_left_out(REQUIREMENTS.read_text(encoding="utf-8")), encoding="utf-8")
    platforms = [f"--platform={name}" for name in runtime.platforms]
    target = ["--target", str(tree), "--no-deps", "--no-compile"]
    binary = ["--only-binary=:all:", "--implementation=cp", f"--python-version={runtime.python}"]
    pip("install", *target, *binary, *platforms, "--require-hashes", "-r", str(wanted))
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(workplace), str(ROOT))
    (wheel,) = workplace.glob("*.whl")
    with ZipFile(wheel) as project:
        project.extractall(tree)
    strip(tree)
    compile_all(tree)


def trust(tree: Path, more: Path | None) -> None:
    """Write the authorities that a database's certificate may be from: the usual ones, and `more`.

    libpq looks for them in the home folder, which a function does not have.
    """
    usual = (tree / "certifi" / "cacert.pem").read_bytes()
    (tree / AUTHORITIES).write_bytes(usual + (more.read_bytes() if more else b""))


def without_left_out(requirements: str) -> str:
    """Return a pinned list without what the functions never import."""
    entries = re.split(r"\n(?=[a-z0-9])", requirements, flags=re.IGNORECASE)
    names = {entry.partition("==")[0] for entry in entries}
    if unknown := LEFT_OUT - names:
        raise SystemExit(f"no longer in {REQUIREMENTS.name}, so take out of LEFT_OUT: {unknown}")
    return "\n".join(e for e in entries if e.partition("==")[0] not in LEFT_OUT) + "\n"


def pip(*arguments: str) -> None:
    """Run this interpreter's pip."""
    # Archives made by a build backend carry this time instead of the hour.
    env = {**os.environ, "SOURCE_DATE_EPOCH": "315532800"}
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, env=env, check=True)  # noqa: S603 - our own arguments


def strip(tree: Path) -> None:
    """Remove what is never read."""
    patterns = [*NOT_NEEDED, *(f"*.dist-info/{name}" for name in OF_THE_INSTALLATION)]
    unused = [path for pattern in patterns for path in tree.glob(pattern)]
    unused += [tree / module for module in MODULES_LEFT_OUT]
    for data in (tree / "botocore" / "data", tree / "boto3" / "data"):
        unused += [path for path in data.glob("*/") if path.name not in SERVICES]
    for path in unused:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def compile_all(tree: Path) -> None:
    """Compile everything, since Lambda's folder is read-only: it would be done at each start."""
    where = ["-s", str(tree), "-p", PLACE]
    command = [sys.executable, "-m", "compileall", "-q", *where]
    subprocess.run(  # noqa: S603 - our own arguments
        [*command, "--invalidation-mode", "unchecked-hash", str(tree)],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        check=True,
    )


def pack(tree: Path, output: Path) -> None:
    """Write the zip, the same for the same tree."""
    output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = output.with_suffix(".partial")
    with ZipFile(unfinished, "w") as archive:
        for path in _files(tree):
            entry = ZipInfo(path.relative_to(tree).as_posix(), EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes(), ZIP_DEFLATED, LEVEL)
    unfinished.replace(output)


def _files(tree: Path) -> Iterator[Path]:
    yield from sorted(path for path in tree.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
