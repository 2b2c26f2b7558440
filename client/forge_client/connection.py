"""Create the backend that the settings describe."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from forge_client.errors import ClientError
from forge_client.settings import Settings

if TYPE_CHECKING:
    from forge_client.backend import Backend


def connect(settings: Settings) -> "Backend":
    """Return a backend for what the settings name; nothing is contacted yet.

    Raises:
        ClientError: nothing is configured and no `forge up` runs, a part is not installed, or the
            settings are invalid.
    """
    if settings.url:
        from forge_client.http.backend import HttpBackend  # noqa: PLC0415 - httpx takes a while

        return HttpBackend(settings.server(), owner=settings.job_owner)
    connection = settings.connection()
    require_extra("psycopg", "schema", "reach a database directly")
    from forge_client.direct.backend import DirectBackend  # noqa: PLC0415 - only with the extra

    return DirectBackend(connection, owner=settings.owner)


def require_extra(module: str, extra: str, purpose: str) -> None:
    """Check that the module of an extra is installed.

    Raises:
        ClientError: the module is not installed.
    """
    if find_spec(module) is None:
        raise ClientError(
            f"this installation of Forge cannot {purpose}: {module} is not installed",
            hint=f"pip install '.[{extra}]' in a clone of Forge, or its wheel with [{extra}]",
            code="extra_missing",
        )
