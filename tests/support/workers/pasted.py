"""A line pasted into a shell, on a machine with little around it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def paste(line: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Have sh execute a line in a folder of its own; the worker goes there too."""
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    around = {"PATH": path, "HOME": str(folder), "FORGE_JOIN_DIR": str(folder / "worker"), **env}
    given = {name: value for name, value in around.items() if value}
    folder.mkdir(exist_ok=True)
    return subprocess.run(
        ["/bin/sh"], input=line, env=given, cwd=folder, text=True, capture_output=True, check=False
    )
