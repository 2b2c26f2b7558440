"""Create the backend that the settings describe."""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

from forge_client import running
from forge_client.errors import ClientError
from forge_client.plain.backend import PlainBackend
from forge_client.plain.place import ServerPlace, named, of_up
from forge_client.plain.wire import NotPlain
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


def connect_plainly(settings: Settings) -> "Backend":
    """Return a backend that asks plainly for what it can, and is `connect`'s for the rest.

    Its records have the fields of the models, and nothing else of them.
    """
    try:
        plain = PlainBackend(_place(settings), partial(connect, settings))
    except (NotPlain, OSError):
        return connect(settings)
    return cast("Backend", plain)


def reached(settings: Settings) -> str:
    """Return the URL of the server that the settings lead to.

    Raises:
        ClientError: they lead to none that others could reach.
    """
    if url := settings.url or (None if settings.database_url else running.find(settings.dir).url):
        return url
    raise ClientError(
        "no server is known that they could reach",
        hint="name it: --server https://forge.example:8900",
        code="server_not_named",
    )


def vouched(url: str, settings: Settings, note: Callable[[str], object]) -> str:
    """Return the fingerprint of a server's authority, if it has one of its own; else ""."""
    if not url.startswith("https:"):
        return ""
    import httpx  # noqa: PLC0415 - it takes a while
    from forge_schema.http_client import tls_context  # noqa: PLC0415 - as above
    from forge_schema.own_authority import fingerprint, offered  # noqa: PLC0415 - as above

    try:
        certificate = offered(url, tls_context(settings.trusted(url)))
    except httpx.HTTPError as error:
        note(f"the lines vouch for no authority of {url}, which does not answer: {error}")
        return ""
    return fingerprint(certificate) if certificate else ""


def _place(settings: Settings) -> ServerPlace:
    more = (
        settings.api_key_file, settings.signing_key_file, settings.tls_ca,
        settings.insecure_skip_verify, settings.database_url, settings.store_url,
        settings.named_by_folder,
    )  # fmt: skip
    if any(more):
        raise NotPlain("the settings have more to say")
    if settings.url is None:
        return of_up(str(settings.dir) if settings.dir else None, settings.owner)
    key = settings.api_key.get_secret_value() if settings.api_key else ""
    return named(settings.url, key, settings.job_owner)


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
