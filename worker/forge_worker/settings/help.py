"""The settings as a table for the documentation and as `forge-worker --help`."""

from collections.abc import Iterator
from itertools import groupby
from textwrap import wrap

from forge_schema.program.help import INDENT, WIDTH, Setting, settings_in
from forge_schema.program.help import text as settings_text
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from forge_worker.settings.profiles import PROFILES, WORDS
from forge_worker.settings.sections import (
    MachineSettings,
    PaceSettings,
    PolicySettings,
    SpotSettings,
)
from forge_worker.settings.settings import ActSettings, QueueAccessSettings, WorkerSettings

GROUPS: dict[str, type[BaseModel]] = {
    "The queue": QueueAccessSettings,
    "This worker": WorkerSettings,
    "Resources and limits": MachineSettings,
    "What jobs may do": PolicySettings,
    "Timing": PaceSettings,
    "When the machine is taken away": SpotSettings,
    "Instead of running jobs": ActSettings,
}
HEAD = """\
Usage: forge-worker [FLAG…]

Run jobs from a Forge queue on this machine until stopped: the first SIGINT
lets running jobs finish, SIGTERM gives them back to the queue, SIGUSR2 leaves
them to the next forge-worker.

Each flag has a variable. Flags override variables, variables override the
profile, and the profile overrides the defaults. To turn off a switch that is
on by default, use --no-…. Separate the items of a list with commas. Sizes are
in MiB, times in seconds.
"""


def table() -> Iterator[Setting]:
    """Yield every setting of the worker, in the order of the documentation."""
    return settings_in({group: _own(kind) for group, kind in GROUPS.items()})


def _own(kind: type[BaseModel]) -> dict[str, FieldInfo]:
    inherited = {name for base in kind.__bases__ for name in getattr(base, "model_fields", ())}
    return {name: info for name, info in kind.model_fields.items() if name not in inherited}


def profile_rows() -> Iterator[tuple[str, str, str]]:
    """Yield profile, flag and value of every setting in the profiles."""
    for profile, values in PROFILES.items():
        for name, value in values.items():
            word = WORDS[value] if callable(value) else f"{value:g}"
            yield profile, f"--{name.replace('_', '-')}", word


def text() -> str:
    """Return the help text."""
    return "\n".join([settings_text(HEAD, table()), *_profiles(), ""])


def _profiles() -> Iterator[str]:
    yield "Profiles:"
    for profile, rows in groupby(profile_rows(), key=lambda row: row[0]):
        flags = ", ".join(f"{flag} {value}" for _, flag, value in rows)
        yield f"  {profile}"
        yield from wrap(
            flags, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT, break_on_hyphens=False
        )
