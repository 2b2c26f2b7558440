"""Notebooks as jobs: the command that runs one, and the packages it takes."""

from collections.abc import Sequence

ENDING = ".ipynb"
# What runs a notebook and stores it after each cell, and the kernel that it runs in.
PACKAGES = ("papermill", "ipykernel")
# The output of the cells goes to the job's log, and what the notebook was becomes an artifact.
SCRIPT = (
    'notebook=$1; shift; exec python3 -m papermill --log-output --no-progress-bar -k python3 "$@"'
    ' "$notebook" "$FORGE_OUTPUT_DIR/${notebook##*/}"'
)


def is_notebook(command: Sequence[str] | None) -> bool:
    """Tell whether a command is a notebook, with papermill's options after it."""
    return bool(command and command[0].endswith(ENDING))


def command_for(command: Sequence[str]) -> list[str]:
    """Return the command that runs a notebook."""
    return ["sh", "-c", SCRIPT, "sh", *command]
