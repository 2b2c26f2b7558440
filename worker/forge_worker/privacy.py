"""The agent's own credentials, kept from the jobs that run as its user."""

import os
from collections.abc import Sequence

FLAGS = ("--database-url", "--token")
VARIABLES = ("FORGE_DATABASE_URL", "FORGE_STORE_URL", "FORGE_TOKEN")
OTHERS = "AWS_"


def without_credentials() -> dict[str, str]:
    """Return the agent's environment for a program of the machine that needs none of its secrets.

    Such a program is not closed to others of its user, as the agent is.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name not in VARIABLES and not name.startswith(OTHERS)
    }


def shown_flags(arguments: Sequence[str]) -> list[str]:
    """Return the flags that put a secret on the command line, which nothing hides."""
    given = {argument.partition("=")[0] for argument in arguments}
    return [flag for flag in FLAGS if flag in given]
