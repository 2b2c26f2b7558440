"""The settings under which Forge's statements run."""

import os

import psycopg

STATEMENT_S = 30.0
# A worker that died holding a row lock must not hold it for long. Every statement of the
# protocol is planned for an index, since the thin tables' statistics are stale by nature.
SETTINGS = {
    "statement_timeout": f"{STATEMENT_S:.0f}s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "5s",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
# A report reads large parts of tables, so the planner may use every method.
REPORT = """
    SET LOCAL plan_cache_mode = auto;
    SET LOCAL enable_seqscan = on;
    SET LOCAL enable_bitmapscan = on;
    SET LOCAL enable_hashjoin = on;
    SET LOCAL enable_mergejoin = on;
"""
# Every method, and no limit: an upgrade may read whole tables for minutes.
UPGRADE = f"""
    {REPORT}
    SET LOCAL statement_timeout = 0;
    SET LOCAL idle_in_transaction_session_timeout = 0;
"""


def options_of(url: str, statement_s: float) -> str:
    """Return the startup parameter `options` with the settings, after those of the URL."""
    given = psycopg.conninfo.conninfo_to_dict(url).get("options")
    before = os.environ.get("PGOPTIONS", "") if given is None else str(given)
    wanted = SETTINGS | {"statement_timeout": str(_milliseconds(statement_s))}
    return " ".join([before, *(f"-c {name}={value}" for name, value in wanted.items())])


def limit(statement_s: float) -> str:
    """Return the statement that sets a transaction's limit for each of its statements."""
    return f"SET LOCAL statement_timeout = {_milliseconds(statement_s)}"


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
