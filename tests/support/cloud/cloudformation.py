"""The templates of infra/, as SAM's own translator converts them to CloudFormation."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

INFRA = Path(__file__).parents[3] / "infra"
CFN_LINT = Path(sys.executable).with_name("cfn-lint")
SECRET = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:forge-AbCdEf"  # noqa: S105  its name
NESTED = {"Database": "database.yaml", "Pool": "workers.yaml"}
UPLOADED = "https://s3.amazonaws.com/code"
SAMPLE = {
    "DatabaseSecretArn": SECRET,
    "WorkerVpcId": "vpc-0123456789abcdef0",
    "WorkerSubnetIds": "subnet-0123456789abcdef0",
}


class _NoManagedPolicies:
    """The templates use no managed policies, so the list need not be fetched."""

    def load(self) -> dict[str, str]:
        return {}


@cache
def parsed(name: str) -> dict[str, Any]:
    """Return a template with its intrinsic functions in their long form."""
    # The translator ships no types, and most who want `INFRA` do without it.
    from samtranslator.yaml_helper import yaml_parse  # type: ignore[import-untyped]  # noqa: PLC0415

    template: dict[str, Any] = yaml_parse((INFRA / name).read_text(encoding="utf-8"))
    return template


@cache
def translated(name: str = "template.yaml") -> dict[str, Any]:
    """Return the CloudFormation template, as if the code had been uploaded.

    Raises:
        samtranslator.model.exceptions.InvalidDocumentException: SAM rejects the template.
    """
    # As above.
    from samtranslator.translator.transform import (  # type: ignore[import-untyped]  # noqa: PLC0415
        transform,
    )

    template = deepcopy(parsed(name))
    template["Globals"]["Function"]["CodeUri"] = "s3://code/forge-lambda.zip"
    for nested, file in NESTED.items():
        template["Resources"][nested]["Properties"]["Location"] = f"{UPLOADED}/{file}"
    with patch.dict(os.environ, AWS_DEFAULT_REGION="eu-west-1"):
        done: dict[str, Any] = transform(template, dict(SAMPLE), _NoManagedPolicies())
    return done


def of_type(template: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    """Return the properties of all resources of one type, by name."""
    resources = template["Resources"].items()
    return {name: r.get("Properties", {}) for name, r in resources if r["Type"] == kind}


def cfn_lint(*files: Path, ignored: str = "") -> subprocess.CompletedProcess[str]:
    """Run cfn-lint with all warnings enabled but one, and without a network."""
    options = ["--ignore-checks", ignored] if ignored else []
    return subprocess.run(
        [CFN_LINT, "--regions", "eu-west-1", *options, "--", *files],
        env={"PATH": "/usr/bin:/bin", "HTTPS_PROXY": "http://127.0.0.1:1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def filled_in(text: str, **values: str) -> str:
    """Return the text of an `Fn::Sub` with its variables replaced.

    Raises:
        KeyError: a variable has no value.
    """
    return re.sub(r"\$\{([A-Za-z:]+)\}", lambda found: values[found[1].replace(":", "")], text)
