"""The verbs about what jobs found out, directly on the database."""

from forge_schema.service.findings import Findings

from forge_client.direct.translation import raising_client_errors


@raising_client_errors
class DirectFindings(Findings):
    """The results, tests and metrics of jobs, read directly from the database."""
