"""Which jobs may share a container: those of one owner that are alike but for what they do."""

import hashlib
import json
from pathlib import Path

from forge_schema.lease import Grant

from forge_worker.removal import remove_tree

ALIKE = ("image", "image_tar", "dockerfile", "requirements", "resources", "secrets")


class Shares:
    """The folders of this machine that such jobs have in common; `lets` is whether any may."""

    def __init__(self, root: Path, *, lets: bool) -> None:
        self._root = root
        self._lets = lets

    def of(self, grant: Grant) -> Path | None:
        """Return the folder that a job has in common with others; None if it is to be alone."""
        if not self._lets or not grant.spec.get("share") or grant.spec.get("handler"):
            return None
        common = {name: grant.spec.get(name) for name in ALIKE}
        said = json.dumps([grant.owner, grant.bundle_digest, common], sort_keys=True)
        return self._root / hashlib.sha256(said.encode()).hexdigest()[:16]

    def clear(self) -> None:
        """Remove what an earlier agent left; before the first job."""
        remove_tree(self._root)
        # A job's user passes through the folders below it, and nobody else is to.
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
