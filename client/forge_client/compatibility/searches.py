"""Servers of 0.2 have no search that stops at a number of jobs. Nothing needs this from 0.4 on."""

from forge_schema.model.errors import ForgeError


def is_unknown(error: ForgeError) -> bool:
    """Return whether a server knows no such search; its list of jobs looks at all of them."""
    return error.code == "not_found"
