"""Tiny hand-made wheels, for projects with requirements."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def wheel(folder: Path, name: str, version: str, requires: Sequence[str] = ()) -> Path:
    """Make a wheel with one module, whose VERSION is the given version."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {need}\n" for need in requires)
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={_digest(text)},{len(text)}\n" for path, text in files.items())
    made = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(path, text)
    return made


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def project(folder: Path, name: str, version: str) -> Path:
    """Make a project that requires one version of a package, and prints the version that it got."""
    wheel(folder / "wheels", name, version)
    (folder / "requirements.txt").write_text(
        "--no-index\n--find-links wheels\n-r more.txt\n", encoding="utf-8"
    )
    (folder / "more.txt").write_text(f"{name}=={version}\n", encoding="utf-8")
    (folder / "main.py").write_text(
        f"import sys, {name}\nprint('has', {name}.VERSION, 'in', sys.prefix)\n", encoding="utf-8"
    )
    return folder
