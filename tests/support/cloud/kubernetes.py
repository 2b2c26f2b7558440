"""The manifests of infra/kubernetes, as kubectl renders them."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from shutil import which
from typing import Any

import yaml
from support.cloud.cloudformation import INFRA
from support.services import require

KUBERNETES = INFRA / "kubernetes"
# The first whose kustomize knows `patches`.
OLDEST = (1, 22)

Documents = list[dict[str, Any]]


def rendered(folder: str) -> Documents:
    """Render a folder."""
    require(_can_render(), f"kubectl {'.'.join(map(str, OLDEST))} or later (.ci/run takes it)")
    ended = subprocess.run(
        ["kubectl", "kustomize", KUBERNETES / folder], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return list(yaml.safe_load_all(ended.stdout))


@cache
def _can_render() -> bool:
    if which("kubectl") is None:
        return False
    words = ["kubectl", "version", "--client"]
    said = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    found = re.search(r"v(\d+)\.(\d+)\.", said)
    return found is not None and (int(found[1]), int(found[2])) >= OLDEST


def of_kind(documents: Documents, kind: str) -> Documents:
    """Return the documents of one kind."""
    return [document for document in documents if document["kind"] == kind]


def pods(documents: Documents) -> dict[str, dict[str, Any]]:
    """Return the template of each pod, by the name of what makes it."""
    found = {}
    for document in documents:
        spec = document.get("spec", {})
        template = spec.get("jobTargetRef", spec).get("template")
        if template:
            found[document["metadata"]["name"]] = template
    return found


def environment(container: dict[str, Any]) -> dict[str, Any]:
    """Return a container's variables: a text, or where the value comes from."""
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container["env"]}
