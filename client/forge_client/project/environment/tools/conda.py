"""Read conda's environment.yml as far as packages of the Python index can replace it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forge_schema.model.bundles import list_text

from forge_client.errors import ClientError
from forge_client.project.environment.names import NAME, canonical, name_of

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
    "py-xgboost": "xgboost",
    "py-xgboost-cpu": "xgboost",
    "py-xgboost-gpu": "xgboost",
    "tensorflow-base": "tensorflow",
    "brotli-python": "brotli",
    "tiledb-py": "tiledb",
    "python-duckdb": "duckdb",
    "python-flatbuffers": "flatbuffers",
    "python-lmdb": "lmdb",
    "python-xxhash": "xxhash",
    "antlr-python-runtime": "antlr4-python3-runtime",
    "faiss": "faiss-cpu",
}
# What an interpreter brings along; `conda env export` lists it.
OF_PYTHON = frozenset({
    "-libgcc-mutex", "-openmp-mutex", "bzip2", "ca-certificates", "expat", "ld-impl-linux-64",
    "ld-impl-linux-aarch64", "libexpat", "libffi", "libgcc", "libgcc-ng", "libgomp", "liblzma",
    "libnsl", "libsqlite", "libstdcxx", "libstdcxx-ng", "libuuid", "libxcrypt", "libzlib",
    "ncurses", "openssl", "pip", "python-abi", "readline", "setuptools", "sqlite", "tk", "tzdata",
    "wheel", "xz", "zlib",
})  # fmt: skip
PYTHON = "python"
INCLUDED = OF_PYTHON | {PYTHON}
# Programs and libraries, some of which have a namesake in the index that is something else.
NOT_PYTHON = re.compile(
    r"lib(?!rosa$|cst$|tmux$).+|cuda-.+|gcc.*|gxx.*|gfortran.*|clang.*|r-.+|mkl|mkl-service|blas"
    r"|openblas|nomkl|cudatoolkit(-dev)?|cudnn|nccl|magma-.+|pytorch-cuda|pytorch-mutex|cpuonly"
    r"|gdal|proj|geos|hdf5|openmpi|mpich|impi-rt|boost|boost-cpp|eigen|make|compilers"
    r"|c-compiler|cxx-compiler|fortran-compiler|binutils.*|sysroot.*|ffmpeg|git|git-lfs|curl|wget"
    r"|nodejs|openjdk|perl|ruby|go|rust|julia|r|r-base|samtools|bcftools|bedtools|blast|bwa"
    r"|graphviz|imagemagick|tesseract|poppler|qt|qt-main|htop|tmux|vim|jq|pandoc|texlive.*"
)
# What wheels of the index bring along, so that conda's is not needed beside them.
BLAS = "blas|libblas|libcblas|liblapack|mkl|mkl-service|nomkl|openblas|libopenblas"
BROUGHT = {
    "numpy": re.compile(BLAS),
    "torch": re.compile(
        rf"{BLAS}|cudatoolkit|cudnn|nccl|cpuonly|pytorch-(cuda|mutex)|torchtriton|magma-cuda.*"
        r"|cuda-(cudart|cupti|libraries|nvrtc|nvtx|opencl|runtime|version)|libnv(jitlink|jpeg)"
        r"|lib(cublas|cudnn|cufft|cufile|curand|cusolver|cusparse|npp)"
    ),
}
# Libraries in C whose namesakes in the index are other things.
OTHERS = frozenset({
    "arrow-cpp", "aws-sdk-cpp", "brotli-bin", "bzip2", "cairo", "ceres-solver", "cmake-no-system",
    "dbus", "fftw", "fontconfig", "freetype", "gflags", "glib", "glog", "glpk", "gmp", "gsl",
    "harfbuzz", "hdf4", "icu", "jemalloc", "jpeg", "lame", "lz4-c", "lzo", "mpc", "mpfr", "mpi",
    "mysql", "ninja-base", "openh264", "openslide", "orc", "pango", "pcre", "pcre2", "pixman",
    "postgresql", "protobuf-c", "rdma-core", "re2", "redis-server", "snappy", "sox", "suitesparse",
    "svt-av1", "tbb-devel", "ucx", "x264", "x265", "xerces-c", "yaml", "yaml-cpp", "zeromq", "zstd",
})  # fmt: skip
# A channel with its platform, a name, a version with its build, and what is in brackets.
SPEC = re.compile(r"(?:[^\s\[]+::)?([A-Za-z0-9_][\w.-]*)\s*([^\[]*)(?:\[(.*)\])?")
IN_BRACKETS = re.compile(r"(\w+)\s*=\s*(?:'([^']*)'|\"([^\"]*)\"|([^,\s]*))")
# What may be written with spaces around it.
SIGN = re.compile(r"([<>=!~,])\s+|\s+(,)")


@dataclass(frozen=True)
class Conda:
    """An environment.yml: the range of its Python, "" for any, and its packages for pip.

    Those that are `brought` are in the wheels of others.
    """

    python: str
    requirements: tuple[str, ...]
    brought: tuple[str, ...] = ()


def read(path: Path) -> Conda:
    """Read an environment.yml.

    Raises:
        ClientError: it is malformed, or names packages that are not Python's.
    """
    packages, pip = _read(path)
    names = [name for name, _ in packages]
    brought = brought_along(names, map(name_of, pip))
    check_python(path.name, names, brought)
    python = next((version for name, version in packages if name == PYTHON), "")
    left = INCLUDED.union(brought)
    own = [required(name, version) for name, version in packages if name not in left]
    return Conda(python, (*own, *pip), brought)


def asked_for(path: Path) -> dict[str, str]:
    """Return the names of an environment.yml with their versions, less what is Python's own.

    Raises:
        ClientError: it is malformed.
    """
    packages, pip = _read(path)
    asked = {name: version for name, version in packages if name not in INCLUDED}
    for line in map(str.strip, pip):
        if match := NAME.match(line):
            asked[canonical(match[0])] = line[match.end() :]
    return asked


def _read(path: Path) -> tuple[list[tuple[str, str]], list[str]]:
    """Return conda's packages with their versions, and pip's lines."""
    # Few projects have such a file.
    import yaml  # noqa: PLC0415

    try:
        document = yaml.safe_load(list_text(path.read_bytes()))
    except (yaml.YAMLError, UnicodeError) as error:
        raise _wrong(f"{path}: it is not valid YAML: {error}") from error
    lines, pip = _listed(document, path)
    return [parsed(line, path) for line in lines], pip


def required(name: str, version: str) -> str:
    """Return a package of conda as a requirement."""
    return f"{RENAMED.get(name, name)}{version}"


def brought_along(names: Sequence[str], of_pip: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the packages of conda among some that the wheels of others bring along."""
    wheels = {RENAMED.get(name, name) for name in names}.union(of_pip) & BROUGHT.keys()
    return tuple(name for name in names if any(BROUGHT[by].fullmatch(name) for by in wheels))


def check_python(file: str, names: Iterable[str], brought: Sequence[str]) -> None:
    """Refuse packages of conda that are none of Python's, whatever the index has of that name.

    Raises:
        ClientError: as said.
    """
    others = [name for name in names if name not in OF_PYTHON.union(brought)]
    if foreign := [name for name in others if name in OTHERS or NOT_PYTHON.fullmatch(name)]:
        raise not_python(file, foreign)


def not_python(file: str, names: list[str]) -> ClientError:
    """Return the error for packages that the index of Python packages does not have."""
    return ClientError(
        f"{file} names packages that are not Python's: {', '.join(names)}",
        hint="submit with --image or --dockerfile and a container that has them, and list the"
        " Python packages in a requirements.txt; or without them: --no-install",
        code="requirements_invalid",
    )


def _listed(document: Any, path: Path) -> tuple[list[str], list[str]]:  # noqa: ANN401 - what YAML holds
    """Return conda's lines and pip's."""
    lines = document.get("dependencies") if isinstance(document, dict) else None
    if not isinstance(lines, list):
        raise _wrong(f"{path}: it has no list `dependencies`")
    conda = [line for line in lines if isinstance(line, str)]
    tables = [line for line in lines if isinstance(line, dict)]
    lists = [table.get("pip") or [] for table in tables]
    pip = [line for listed in lists for line in listed]
    are_lists = all(isinstance(listed, list) for listed in lists) and all(
        isinstance(line, str) for line in pip
    )
    if len(conda) + len(tables) < len(lines) or not are_lists:
        raise _wrong(f"{path}: `dependencies` has an entry that is not text")
    return conda, pip


def parsed(line: str, path: Path) -> tuple[str, str]:
    """Return a package's canonical name and version, as pip writes it."""
    match = SPEC.fullmatch(line.strip().partition("#")[0].strip())
    if match is None:
        raise _wrong(f"{path}: {line!r} is not a package")
    brackets = {
        match_in_brackets[1]: match_in_brackets[2]
        or match_in_brackets[3]
        or match_in_brackets[4]
        or ""
        for match_in_brackets in IN_BRACKETS.finditer(match[3] or "")
    }
    return canonical(match[1]), _version(brackets.get("version") or match[2].strip(), line, path)


def _version(text: str, line: str, path: Path) -> str:
    """`1.2`, `=1.2` and `=1.2.*` of conda mean any 1.2; `=1.2.3=build` means 1.2.3."""
    # The build comes after a space, where no comma or sign is before it.
    text, _, build = SIGN.sub(r"\1\2", text).partition(" ")
    if "|" in text or "@" in text:
        raise _wrong(f"{path}: {line!r}: this kind of version is not understood")
    if text[:1] in {"<", ">", "!", "~"} or text.startswith("==") or "," in text:
        return ",".join(_clause(part.strip()) for part in text.split(","))
    number, _, built = text.removeprefix("=").strip().partition("=")
    if number in {"", "*"}:
        return ""
    if (build or built) and "*" not in number:
        return f"=={number}"
    number = number.removesuffix(".*").removesuffix("*")
    return f"=={number}.*" if number.count(".") < 2 else f"=={number}"  # noqa: PLR2004 - 1.2.3


def _clause(text: str) -> str:
    """Return a condition as pip writes it, which has no `>=1.2.*`."""
    if text[:1] not in {"<", ">", "!", "~", "="}:
        return f"=={text}"
    return text.removesuffix(".*") if text[:1] in {"<", ">", "~"} else text


def _wrong(message: str) -> ClientError:
    return ClientError(
        message,
        hint="correct it, name another list with --requirements, or submit with --no-install",
        code="requirements_invalid",
    )
