"""What a job that could not import something lacks, and how to give it that."""

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

MODULE = re.compile(r"(?:ModuleNotFoundError|\S*python\S*): No module named '?(\w+)")
LIBRARY = re.compile(r"ImportError: (lib[^\s:]+\.so[^\s:]*): cannot open shared object file")
# Modules whose package has another name.
PACKAGES = {
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "Crypto": "pycryptodome",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "git": "gitpython",
    "jwt": "pyjwt",
    "OpenSSL": "pyopenssl",
    "pkg_resources": "setuptools",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
ADDING = {"uv.lock": "`uv add {}`", "poetry.lock": "`poetry add {}`"}


def lacks(error: str, spec: Mapping[str, Any], work: Path) -> str | None:
    """Return what a job lacks and what to do, from the last line of its traceback.

    Args:
        error: the line.
        spec: the job's.
        work: its folder.
    """
    # Before it may stand how the job was killed, or which rank failed.
    error = error.rpartition("; last output: ")[2]
    if library := LIBRARY.match(error):
        return f"the job has no {library[1]}: use an image that has it (--image)"
    match = MODULE.match(error)
    module = match[1] if match else ""
    if not module or _exists(work, module):
        return None
    if _exists(work / "src", module):
        return f"{module} is in the project's folder src: submit with --env PYTHONPATH=src"
    return _not_installed(PACKAGES.get(module, module), spec)


def _exists(folder: Path, module: str) -> bool:
    return (folder / module).is_dir() or (folder / f"{module}.py").is_file()


def _not_installed(package: str, spec: Mapping[str, Any]) -> str:
    listed = spec.get("requirements")
    source = (spec.get("environment") or {}).get("source") or listed
    if not source:
        has = "the image" if spec.get("image") else "the worker's Python"
        return f"{package} is not in {has}: name it in a requirements.txt and submit again"
    if source.startswith("the active"):
        return f"{package} is not in {source}: install it there and submit again"
    how = ADDING.get(PurePosixPath(source).name, "add it there").format(package)
    return f"{package} is not in {source}: {how} and submit again"
