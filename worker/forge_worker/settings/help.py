"""`forge-worker --help`: every setting with its variable and default, the queue's first."""

from collections.abc import Iterator
from itertools import groupby
from textwrap import wrap

from forge_worker.settings.table import Setting, profile_rows, table

HEAD = """\
Usage: forge-worker [FLAG…]

Run jobs of a Forge queue on this machine, until it is told to leave: the first
SIGINT drains, SIGTERM gives the running jobs back.

Each flag has a variable. Flags come before variables, variables before the
profile, the profile before defaults. A switch that is on is turned off by
--no-…; lists are written with commas; sizes are in MiB, times in seconds.
"""
INDENT = "      "
WIDTH = 79


def wanted(words: list[str]) -> bool:
    """Tell whether a command line asks for help."""
    return "-h" in words or "--help" in words


def text() -> str:
    """Return the help as it is printed."""
    parts = [HEAD]
    for group, settings in groupby(table(), key=lambda setting: setting.group):
        parts.append(f"{group}:")
        parts += [_entry(setting) for setting in settings]
        parts.append("")
    return "\n".join([*parts, *_profiles(), ""])


def _entry(setting: Setting) -> str:
    default = f" (default: {setting.default})" if setting.default not in ("", "no") else ""
    about = wrap(setting.about + default, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT)
    return "\n".join([f"  {setting.flag}  [{setting.variable}]", *about])


def _profiles() -> Iterator[str]:
    yield "Profiles:"
    for profile, rows in groupby(profile_rows(), key=lambda row: row[0]):
        said = ", ".join(f"{flag} {value}" for _, flag, value in rows)
        yield f"  {profile}"
        yield from wrap(
            said, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT, break_on_hyphens=False
        )
