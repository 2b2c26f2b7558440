"""The actions in the audit trail."""

from forge_schema.read.audit import ACTIONS
from tabular import cell, table

HEAD = """\
# Events

Generated from the code. `forge events`, `GET /api/v1/admin/events`, the page of events and the
view `audit` show the audit trail: these actions, and the start and the end of every attempt.
"""


def page() -> str:
    """Return the page about events."""
    rows = [(f"`{action}`", cell(about)) for action, about in sorted(ACTIONS.items())]
    return f"{HEAD}\n{table(('action', 'meaning'), rows)}"
