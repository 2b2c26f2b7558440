"""The two ways to reach a Forge installation: through a server, or its database and store."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from forge_client.direct.admin import DirectAdmin
    from forge_client.direct.backend import DirectBackend
    from forge_client.direct.findings import DirectFindings
    from forge_client.http.admin import HttpAdmin
    from forge_client.http.backend import HttpBackend
    from forge_client.http.findings import HttpFindings

# All methods raise only `ClientError`; a backend may be used from several threads. `slowest_s`
# is the longest pause, in seconds, between two checks of a quiet job.
Backend: TypeAlias = "DirectBackend | HttpBackend"
Admin: TypeAlias = "DirectAdmin | HttpAdmin"
Findings: TypeAlias = "DirectFindings | HttpFindings"

Progress: TypeAlias = Callable[[int], None]
"""Called with the bytes moved since the last call."""
