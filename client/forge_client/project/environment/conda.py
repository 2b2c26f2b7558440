"""Read conda's environment.yml as far as packages of the Python index can replace it."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forge_schema.model.bundles import list_text

from forge_client.errors import ClientError
from forge_client.project.environment.names import canonical

# Other names in the index of Python packages.
RENAMED = {
    "pytorch": "torch",
    "pytorch-cpu": "torch",
    "pytorch-gpu": "torch",
    "tensorflow-gpu": "tensorflow",
    "matplotlib-base": "matplotlib",
    "opencv": "opencv-python-headless",
    "py-opencv": "opencv-python-headless",
    "pytables": "tables",
    "msgpack-python": "msgpack",
    "python-graphviz": "graphviz",
    "ruamel-yaml": "ruamel.yaml",
    "dask-core": "dask",
    "pyqt": "pyqt5",
}
# What an interpreter brings along; `conda env export` lists it.
OF_PYTHON = frozenset({
    "-libgcc-mutex", "-openmp-mutex", "bzip2", "ca-certificates", "expat", "ld-impl-linux-64",
    "ld-impl-linux-aarch64", "libexpat", "libffi", "libgcc", "libgcc-ng", "libgomp", "liblzma",
    "libnsl", "libsqlite", "libstdcxx", "libstdcxx-ng", "libuuid", "libxcrypt", "libzlib",
    "ncurses", "openssl", "pip", "python-abi", "readline", "setuptools", "sqlite", "tk", "tzdata",
    "wheel", "xz", "zlib",
})  # fmt: skip
# Programs and libraries, some of which have a namesake in the index that is something else.
NOT_PYTHON = re.compile(
    r"lib(?!rosa$|cst$|tmux$).+|cuda-.+|gcc.*|gxx.*|gfortran.*|clang.*|r-.+|mkl|mkl-service|blas"
    r"|openblas|nomkl|cudatoolkit(-dev)?|cudnn|nccl|magma-.+|pytorch-cuda|pytorch-mutex|cpuonly"
    r"|gdal|proj|geos|hdf5|openmpi|mpich|impi-rt|boost|boost-cpp|eigen|make|compilers"
    r"|c-compiler|cxx-compiler|fortran-compiler|binutils.*|sysroot.*|ffmpeg|git|git-lfs|curl|wget"
    r"|nodejs|openjdk|perl|ruby|go|rust|julia|r|r-base|samtools|bcftools|bedtools|blast|bwa"
    r"|graphviz|imagemagick|tesseract|poppler|qt|qt-main|htop|tmux|vim|jq|pandoc|texlive.*"
)
SPEC = re.compile(r"(?:[\w.-]+::)?([A-Za-z0-9_][\w.-]*)\s*(.*)")


@dataclass(frozen=True)
class Conda:
    """An environment.yml: the version of Python, and its packages as requirements."""

    python: str | None
    requirements: tuple[str, ...]


def read(path: Path) -> Conda:
    """Read an environment.yml.

    Raises:
        ClientError: it is malformed, or names packages that are not Python's.
    """
    # Few projects have such a file.
    import yaml  # noqa: PLC0415

    try:
        said = yaml.safe_load(list_text(path.read_bytes()))
    except (yaml.YAMLError, UnicodeError) as error:
        raise _wrong(f"{path}: it is not valid YAML: {error}") from error
    lines, pip = _listed(said, path)
    found = [_parsed(line, path) for line in lines]
    foreign = [name for name, _ in found if NOT_PYTHON.fullmatch(name) and name not in OF_PYTHON]
    if foreign:
        raise not_python(path.name, foreign)
    versions = [version for name, version in found if name == "python"]
    kept = [one for one in found if one[0] not in OF_PYTHON | {"python"}]
    own = [f"{RENAMED.get(name, name)}{version}" for name, version in kept]
    return Conda(_minor(versions), (*own, *pip))


def not_python(file: str, names: list[str]) -> ClientError:
    """Return the error for packages that the index of Python packages does not have."""
    return ClientError(
        f"{file} names packages that are not Python's: {', '.join(names)}",
        hint="submit with --image or --dockerfile and a container that has them, and list the"
        " Python packages in a requirements.txt; or without them: --no-install",
        code="requirements_invalid",
    )


def _listed(said: Any, path: Path) -> tuple[list[str], list[str]]:  # noqa: ANN401 - what YAML holds
    """Return conda's lines and pip's."""
    lines = said.get("dependencies") if isinstance(said, dict) else None
    if not isinstance(lines, list):
        raise _wrong(f"{path}: it has no list `dependencies`")
    conda = [line for line in lines if isinstance(line, str)]
    tables = [line for line in lines if isinstance(line, dict)]
    pip = [line for table in tables for line in table.get("pip") or []]
    if len(conda) + len(tables) < len(lines) or not all(isinstance(line, str) for line in pip):
        raise _wrong(f"{path}: `dependencies` has an entry that is not text")
    return conda, pip


def _parsed(line: str, path: Path) -> tuple[str, str]:
    """Return a package's canonical name and version, as pip writes it."""
    match = SPEC.fullmatch(line.strip().partition("#")[0].strip().split("[")[0])
    if match is None:
        raise _wrong(f"{path}: {line!r} is not a package")
    return canonical(match[1]), _version(match[2].strip(), line, path)


def _version(said: str, line: str, path: Path) -> str:
    """`1.2`, `=1.2` and `=1.2.*` of conda mean any 1.2; `=1.2.3=build` means 1.2.3."""
    if not said or said == "*":
        return ""
    if "|" in said or "@" in said:
        raise _wrong(f"{path}: {line!r}: this kind of version is not understood")
    number, _, build = said.removeprefix("=").strip().partition("=")
    if said.startswith("=") and not said.startswith("==") and build:
        return f"=={number}"
    if said[0] in "<>!~" or said.startswith("=="):
        return ",".join(part.strip() for part in said.split(","))
    number = number.removesuffix(".*")
    return f"=={number}.*" if number.count(".") < 2 else f"=={number}"  # noqa: PLR2004 - 1.2.3


def _minor(versions: list[str]) -> str | None:
    match = re.search(r"\d+\.\d+", versions[0]) if versions else None
    return match[0] if match else None


def _wrong(message: str) -> ClientError:
    return ClientError(
        message,
        hint="correct it, name another list with --requirements, or submit with --no-install",
        code="requirements_invalid",
    )
