"""How a job in a container gets its secrets: by a file that its shell reads and then empties.

An engine shows whoever asks the variables that it was given; it is never given these. The file is
gone from the host as soon as the container has it.
"""

from __future__ import annotations

import os
import shlex
from contextlib import contextmanager
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from forge_worker.runners.runner import Mount, RunSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRETS = PurePosixPath("/forge/secrets")
TAKE = f". {SECRETS}; : >{SECRETS}; "


@contextmanager
def handed_over(spec: RunSpec, uid: int, gid: int) -> Iterator[RunSpec]:
    """Give the start with its secrets in a file of the job's user, which goes with the block.

    Raises:
        OSError: the file cannot be written.
    """
    if not spec.secrets:
        yield spec
        return
    path = spec.log_path.absolute().with_name(f"{spec.log_path.name}.secrets")
    path.unlink(missing_ok=True)
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "w", encoding="utf-8") as stream:
            os.fchown(file, uid, gid)
            stream.writelines(f"export {n}={shlex.quote(v)}\n" for n, v in spec.secrets.items())
        yield replace(spec, mounts=(*spec.mounts, Mount(path, SECRETS, writable=True)))
    finally:
        path.unlink(missing_ok=True)
