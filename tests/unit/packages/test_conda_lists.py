"""Lists and locks of conda and pixi, as far as Python's index has what they name.

The locks have the form of pixi's version 6 and of conda-lock's version 1, with few packages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_client.errors import ClientError
from forge_client.project.environment.tables import OF_PYPI
from forge_client.project.environment.tools import conda
from support.packages import listed, sent, write

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("line", "made"),
    [
        ('numpy[version=">=1.26"]', "numpy>=1.26"),
        ("numpy[version='1.26.*', channel=conda-forge]", "numpy==1.26.*"),
        ("numpy[build=py312*]", "numpy"),
        ("conda-forge::numpy", "numpy"),
        ("conda-forge/linux-64::numpy=1.26", "numpy==1.26.*"),
        ("https://conda.example.org/main::numpy 1.26.4", "numpy==1.26.4"),
        ("pytorch=*=*cuda*", "torch"),
        ("pytorch=2.4=cuda*", "torch==2.4"),
        ("pytorch 2.4.1 py3.12_cuda12.4_cudnn9_0", "torch==2.4.1"),
        ("pytorch 2.4.* *cuda*", "torch==2.4.*"),
        ("scipy=1.14.0=py312h0", "scipy==1.14.0"),
        ("numpy >= 1.26, < 2", "numpy>=1.26,<2"),
        ("numpy >=1.26,<2 py312*", "numpy>=1.26,<2"),
        ("numpy>=1.26.*", "numpy>=1.26"),
        ("numpy !=1.26.*", "numpy!=1.26.*"),
        ("numpy ~=1.26", "numpy~=1.26"),
        ("numpy==1.26.4", "numpy==1.26.4"),
        ("numpy 1.26.*", "numpy==1.26.*"),
        ("numpy 1.*", "numpy==1.*"),
        ("numpy *", "numpy"),
        ("py-xgboost-gpu", "xgboost"),
        ("brotli-python", "brotli"),
    ],
)
def test_a_package_of_conda_as_pip_names_it(tmp_path: Path, line: str, made: str) -> None:
    write(tmp_path, {"environment.yml": f"dependencies:\n- {line!r}\n"})
    assert conda.read(tmp_path / "environment.yml").requirements == (made,)


@pytest.mark.parametrize("line", ["numpy 1.25|1.26", "numpy[version='1.25|1.26']", "[numpy]", "=1"])
def test_what_cannot_be_said_to_pip_is_refused(tmp_path: Path, line: str) -> None:
    folder = write(tmp_path, {"environment.yml": f"dependencies:\n- {line!r}\n"})
    with pytest.raises(ClientError, match=r"environment\.yml"):
        sent(folder)


@pytest.mark.parametrize("pip", ["six", "{six: 1}", "[{six: 1}]"])
def test_packages_for_pip_are_a_list_of_text(tmp_path: Path, pip: str) -> None:
    folder = write(tmp_path, {"environment.yml": f"dependencies:\n- pip: {pip}\n"})
    with pytest.raises(ClientError, match="an entry that is not text"):
        sent(folder)


@pytest.mark.parametrize("name", ["snappy", "conda-forge::lz4-c", "zstd=1.5", "sox", "libpng"])
def test_a_library_with_a_namesake_in_the_index_is_named(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path, {"environment.yml": f"dependencies: [numpy, '{name}']\n"})
    with pytest.raises(ClientError, match="packages that are not Python's: "):
        sent(folder)


@pytest.mark.parametrize(
    ("asked", "head"),
    [
        ("python=3.12", "# python 3.12"),
        ("python 3.12.4 h123_0", "# python 3.12"),
        ("python>=3.12,<3.14", "# python 3.12 3.13 (>=3.12,<3.14)"),
        ("python", "# any python"),
    ],
)
def test_the_python_of_an_environment_may_be_a_range(tmp_path: Path, asked: str, head: str) -> None:
    assert (
        listed(sent(write(tmp_path, {"environment.yml": f"dependencies: ['{asked}']\n"})))[0]
        == head
    )


CHANNEL = "https://conda.example/conda-forge"
SIX = f"{OF_PYPI}packages/b7/ce/six-1.17.0-py2.py3-none-any.whl"
PIXI = f"""
version: 6
environments:
  default:
    channels:
    - url: {CHANNEL}/
    packages:
      linux-64:
      - conda: {CHANNEL}/linux-64/libblas-3.9.0-31_openblas.conda
      - conda: {CHANNEL}/linux-64/numpy-1.26.4-py312heda63a1_0.conda
      - conda: {CHANNEL}/linux-64/python-3.12.9-h9e4cc4f_1_cpython.conda
      - pypi: {SIX}
      - pypi: ./
packages:
- conda: {CHANNEL}/linux-64/libblas-3.9.0-31_openblas.conda
  sha256: aa
- conda: {CHANNEL}/linux-64/numpy-1.26.4-py312heda63a1_0.conda
  sha256: aa
  depends:
  - libblas >=3.9.0,<4.0a0
  - python >=3.12,<3.13.0a0
- conda: {CHANNEL}/linux-64/python-3.12.9-h9e4cc4f_1_cpython.conda
  sha256: aa
- pypi: {SIX}
  name: six
  version: 1.17.0
  sha256: aa
- pypi: ./
  name: mine
  version: '1'
"""
PIXI_TOML = (
    "[workspace]\nchannels = ['conda-forge']\nplatforms = ['linux-64']\n[dependencies]\n"
    "python = '3.12.*'\nnumpy = '>=1.26,<2'\n[pypi-dependencies]\nsix = '*'\n"
)


def conda_lock(*packages: tuple[str, str, str, str]) -> str:
    rows = "".join(
        f"- name: {name}\n  version: {version}\n  manager: {manager}\n  platform: linux-64\n"
        f"  dependencies: {{{needs}}}\n  url: {SIX}\n  hash: {{sha256: aa}}\n"
        "  category: main\n  optional: false\n"
        for name, version, manager, needs in packages
    )
    return f"version: 1\nmetadata:\n  content_hash: {{linux-64: aa}}\npackage:\n{rows}"


OF_CONDA = (
    ("libblas", "3.9.0", "conda", ""),
    ("numpy", "1.26.4", "conda", "libblas: '*', python: '*'"),
    ("python", "3.12.9", "conda", ""),
    ("six", "1.17.0", "pip", ""),
)
ENVIRONMENT = "dependencies:\n- python=3.12\n- numpy>=1.26,<2\n- pip:\n  - six\n"


@pytest.mark.parametrize(
    "files",
    [
        {"pixi.lock": PIXI, "pixi.toml": PIXI_TOML},
        {"pixi.lock": PIXI},
        {
            "pixi.lock": PIXI,
            "pyproject.toml": PIXI_TOML.replace("[", "[tool.pixi.").replace("= [tool.pixi.", "= ["),
        },
        {"conda-lock.yml": conda_lock(*OF_CONDA), "environment.yml": ENVIRONMENT},
        {"conda-lock.yml": conda_lock(*OF_CONDA)},
    ],
)
def test_what_a_project_needs_of_a_lock_of_conda(tmp_path: Path, files: dict[str, str]) -> None:
    # With an image, the worker resolves it: no index has to be asked here.
    whole = sent(write(tmp_path, files), image="busybox")
    assert whole.notes[0].startswith(next(iter(files)))
    assert listed(whole) == ["numpy==1.26.4", "six==1.17.0"]
    assert whole.environments[".forge-requirements.txt"]["python"] == "3.12"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            {"pixi.lock": PIXI, "pixi.toml": PIXI_TOML.replace("1.26,<2", "2")},
            r"pixi\.lock is older than pixi\.toml: it has numpy 1\.26\.4, not >=2",
        ),
        (
            {"pixi.lock": PIXI, "pixi.toml": f"{PIXI_TOML}tabulate = '*'\n"},
            r"pixi\.lock is older than pixi\.toml: tabulate is not in it",
        ),
        (
            {
                "pixi.lock": PIXI,
                "pyproject.toml": "[project]\nname = 'mine'\ndependencies = ['tabulate>=1']\n"
                "[tool.pixi.pypi-dependencies]\nmine = {path = '.', editable = true}\n",
            },
            r"pixi\.lock is older than pyproject\.toml: tabulate is not in it",
        ),
        (
            {
                "conda-lock.yml": conda_lock(*OF_CONDA),
                "environment.yml": f"{ENVIRONMENT}  - tabulate\n",
            },
            r"conda-lock\.yml is older than environment\.yml: tabulate is not in it",
        ),
        (
            {"conda-lock.yml": conda_lock(*OF_CONDA, ("gdal", "3.1", "conda", ""))},
            r"conda-lock\.yml names packages that are not Python's: gdal",
        ),
        ({"pixi.lock": PIXI.replace("linux-64:", "osx-64:")}, "it has no 'linux-64'"),
    ],
)
def test_a_lock_of_conda_that_does_not_fit_is_refused(
    tmp_path: Path, files: dict[str, str], said: str
) -> None:
    with pytest.raises(ClientError, match=said):
        sent(write(tmp_path, files), image="busybox")


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("https://private.example/six-1.17.0-py3-none-any.whl", None),
        ("git+https://g.example/six@abc", None),
        ("git+https://g.example/six?rev=main#abc", "git+https://g.example/six@abc"),
        (
            "git+https://g.example/x?subdirectory=y&rev=1#abc",
            "git+https://g.example/x@abc#subdirectory=y",
        ),
    ],
)
@pytest.mark.parametrize("lock", ["pixi.lock", "conda-lock.yml"])
def test_a_package_from_elsewhere_is_not_taken_from_the_index(
    tmp_path: Path, lock: str, url: str, place: str | None
) -> None:
    text = PIXI if lock == "pixi.lock" else conda_lock(*OF_CONDA)
    folder = write(tmp_path, {lock: text.replace(SIX, url)})
    assert listed(sent(folder, image="busybox")) == ["numpy==1.26.4", f"six @ {place or url}"]
