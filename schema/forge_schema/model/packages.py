"""The Python packages of a job: where they were taken from, and how their lock is named."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, Field

from forge_schema.model.fields import NUMERIC, KnownFields, Text

# The stem of the file in a job's code that lists its packages, each with its version, and no other.
LOCK = ".forge-lock"
# Its first line, if the project asks for a version of Python.
PYTHON = "# python "
# Variables of pip, and those by which uv knows the same. Both separate the values by spaces.
UV_FOR_PIP = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_EXTRA_INDEX_URL",
    "PIP_NO_INDEX": "UV_OFFLINE",
    "PIP_TRUSTED_HOST": "UV_INSECURE_HOST",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
    "PIP_DEFAULT_TIMEOUT": "UV_HTTP_TIMEOUT",
    "PIP_RETRIES": "UV_HTTP_RETRIES",
    "PIP_CERT": "SSL_CERT_FILE",
}


class Environment(KnownFields, BaseModel):
    """What a job's packages were taken from when it was submitted.

    It is for people: the job installs its `requirements`. `reason` says why this `source`, and why
    it was not locked. If it was, `packages` is how many the lock has, and `lock` its SHA-256.
    `python` is the version that the project asks for.
    """

    source: Annotated[Text, Field(min_length=1, max_length=500)]
    reason: Annotated[Text, Field(max_length=1000)] | None = None
    packages: Annotated[int, Field(ge=0, le=1_000_000), NUMERIC] | None = None
    lock: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    python: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+$")] | None = None


def uv_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which uv looks for packages where pip would."""
    found = {
        uv: variables[pip].replace(" ", ",") if uv == "UV_FIND_LINKS" else variables[pip]
        for pip, uv in UV_FOR_PIP.items()
        if variables.get(pip) and uv not in variables
    }
    # pip takes the best of all indexes, and resolved the lists of its users so.
    return {"UV_INDEX_STRATEGY": "unsafe-best-match", **found}
