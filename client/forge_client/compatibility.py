"""What the release before needs, each naming the release that no longer does."""

from forge_schema.model.errors import ForgeError


def knows_no_search(error: ForgeError) -> bool:
    """Return whether a server knows no search that stops at a number of jobs, as those of 0.2.

    Its list of jobs looks at all of them. Nothing needs this from 0.4 on.
    """
    return error.code == "not_found"
