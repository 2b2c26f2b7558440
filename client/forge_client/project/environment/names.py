"""The names of packages, as an index knows them."""

import re

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
EXTRAS = re.compile(r"\s*[\w.-]+\s*\[([^\]]*)\]")
AN_EXTRA = re.compile(r";.*\bextra\s*==\s*[\"']([\w.-]+)")


def canonical(name: str) -> str:
    """Return a package's name as an index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(requirement: str) -> str:
    """Return the canonical name in a requirement such as `NumPy>=2`; "" without one."""
    match = NAME.match(requirement.strip())
    return canonical(match[0]) if match else ""


def extras_of(requirement: str) -> list[str]:
    """Return the extras in a requirement such as `psycopg[binary,pool]>=3`."""
    match = EXTRAS.match(requirement)
    return [extra.strip() for extra in match[1].split(",")] if match else []
