"""`forge-server` from its settings on; the paths, which take long to import, come after these."""

import forge_schema.program.lean  # noqa: F401 - it makes the imports below cheaper

# isort: split
import sys
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module

from forge_schema.access.tokens import hide
from forge_schema.program import faults
from forge_schema.program import help as help_text
from forge_schema.program.log import configure_log

from forge_functions.settings import FunctionsSettings, tls_faults

NAME = "forge-server"
VERBS = ("init", "start", "stop", "status", "direct")
HEAD = """\
Usage: forge-server [FLAG…]
       forge-server init [--help]
       forge-server start|stop|status|direct [--help]

Serve the HTTP functions of a Forge queue: the API, the dashboard and what
workers need.

Each flag has a variable; flags override variables. To turn off a switch that
is on by default, use --no-…. Times are in seconds.
"""
GROUPS = {
    "The queue": ("database_url", "store_url", "server_secret"),
    "The address": ("host", "port", "socket_fd", "public_url", "tls_cert", "tls_key"),
    "Callers": ("caller_rate", "body_limit_bytes", "long_poll_s", "url_lasts_s", "token_lasts_s",
                "session_lasts_s", "up_token"),
    "Workers": ("heartbeat_s", "lease_ttl_s", "enrol_issuer", "enrol_audience", "enrol_accounts"),
    "Single sign-on": ("oidc_issuer", "oidc_audience", "oidc_client_id", "oidc_client_secret",
                       "oidc_owner_claim", "oidc_role_claim", "oidc_roles", "oidc_team_claim",
                       "oidc_teams", "oidc_everyone"),
    "The database": ("prepare", "database_connections", "read_connections", "report_connections",
                     "report_limit_s"),
    "Metrics": ("metrics_key", "metrics_open"),
}  # fmt: skip
# By the words of other servers.
WORDS = {
    "--bind": "did you mean --host and --port?",
    "--ssl": "did you mean --tls-cert and --tls-key?",
    "--ssl-certfile": "did you mean --tls-cert?",
    "--ssl-keyfile": "did you mean --tls-key?",
    "--secret": "did you mean --server-secret?",
}


def main() -> None:
    """Serve until a signal, or make this machine a server, or run that one: `VERBS`."""
    verb = sys.argv[1] if sys.argv[1:] else "-"
    if verb in VERBS:
        hide()
        import_module("forge_functions.init").main(*sys.argv[1:])
    elif not verb.startswith("-"):
        near = get_close_matches(verb, VERBS, 1)
        meant = f"did you mean {near[0]!r}?" if near else f"write {', '.join(VERBS)}, or only flags"
        sys.stderr.write(f"forge-server: there is no command {verb!r}: {meant}\n")
        sys.exit(2)
    else:
        run(_serving)


def run(serving: Callable[[], Callable[[FunctionsSettings], None]]) -> None:
    """Read the settings, and serve with what `serving` returns then."""
    if help_text.wanted(sys.argv[1:]):
        sys.stdout.write(help_text.text(HEAD, help_text.in_groups(FunctionsSettings, GROUPS)))
        return
    hide()
    configure_log("text" if sys.stderr.isatty() else "json")
    settings = faults.read(
        NAME,
        FunctionsSettings,
        lambda: faults.of_command_line(FunctionsSettings),
        words=WORDS,
        more=tls_faults,
    )
    with faults.ending(NAME):
        serving()(settings)


def _serving() -> Callable[[FunctionsSettings], None]:
    serve: Callable[[FunctionsSettings], None] = import_module("forge_functions.server").serve
    return serve
