"""Keep the agent's credentials from jobs that run as the same user."""

import os
from collections.abc import Sequence

FLAGS = ("--database-url", "--token")
VARIABLES = ("FORGE_DATABASE_URL", "FORGE_STORE_URL", "FORGE_TOKEN")
OTHERS = "AWS_"


def without_credentials() -> dict[str, str]:
    """Return the agent's environment without its secrets, for a helper program.

    Other processes of the same user can read such a program's environment, but not the agent's.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name not in VARIABLES and not name.startswith(OTHERS)
    }


def shown_flags(arguments: Sequence[str]) -> list[str]:
    """Return the flags that expose a secret on the command line."""
    given = {argument.partition("=")[0] for argument in arguments}
    return [flag for flag in FLAGS if flag in given]
