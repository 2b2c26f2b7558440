"""The client's settings: flags before FORGE_* variables before forge.toml."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from forge_client.errors import ClientError
from forge_client.http import Server, checked_key, checked_url, read_key
from forge_client.plain.place import login_name

FILE_URL = "forge.toml: url"
PLACES = ("url", "database_url")


@dataclass(frozen=True)
class QueueConnection:
    """The database and the store to use; of a `forge up`, also its folder and its server's URL."""

    database_url: str
    store_url: str | None
    up_dir: Path | None = None
    up_url: str | None = None

    def store(self) -> str:
        """Return the store's URL; `ClientError` if no store is configured."""
        if self.store_url is None:
            raise ClientError(
                "a database is configured, but no store",
                hint="set FORGE_STORE_URL, or pass --store-url",
                code="store_not_named",
            )
        return self.store_url


class Settings(BaseModel):
    """Where to find Forge, and as whom. Each field is also a variable, `FORGE_URL` and so on."""

    model_config = ConfigDict(frozen=True)

    url: str | None = None
    api_key: SecretStr | None = None
    api_key_file: Path | None = None
    signing_key_file: Path | None = None
    tls_ca: Path | None = None
    insecure_skip_verify: bool = False
    database_url: str | None = None
    store_url: str | None = None
    dir: Path | None = None
    owner: str = Field(default_factory=login_name)
    # Whether the server is only what a folder's forge.toml says, which anybody may have written.
    named_by_folder: bool = False
    # What the API key was given as, for errors.
    key_named: str = "FORGE_API_KEY"
    # The same of the server's URL.
    url_named: str = "url"
    # Whether the server is the only one that this user is logged in to, and nothing names any.
    by_login: bool = False

    @property
    def job_owner(self) -> str | None:
        """Owner of submitted jobs; None means the owner of the API key."""
        return self.owner if self.url is None or "owner" in self.model_fields_set else None

    def server(self) -> Server:
        """Return the configured server; `ClientError` if its URL or the API key is invalid."""
        url = checked_url(self.url or "", self.url_named)
        key = self._key()
        login = None if key else _login(url)
        if key and self.named_by_folder:
            from forge_client.http import logins  # noqa: PLC0415 - as below

            logins.check_trusted(url)
        return Server(
            url,
            key or login,
            signing_key=self.signing_key_file,
            ca=self.trusted(url),
            verify=not self.insecure_skip_verify,
            login=login is not None,
        )

    def trusted(self, url: str) -> Path | None:
        """Return the file of the authorities that are named, or that `forge login` has for it."""
        if self.tls_ca is not None or not url.startswith("https:"):
            return self.tls_ca
        from forge_client.http import logins  # noqa: PLC0415 - as below

        return logins.authority(url)

    def asks_about(self) -> str | None:
        """Return the server that a key would be sent to though only a folder names it, if any."""
        if not (self.url and self.named_by_folder and (self.api_key or self.api_key_file)):
            return None
        from forge_client.http import logins  # noqa: PLC0415 - as below

        url = checked_url(self.url)
        return None if logins.is_trusted(url) else url

    def _key(self) -> str | None:
        if self.api_key_file is not None:
            return read_key(self.api_key_file)
        if self.api_key is not None:
            return checked_key(self.api_key.get_secret_value(), self.key_named)
        return None

    def connection(self) -> QueueConnection:
        """Return the configured database and store, or else those of a running `forge up`.

        A configured database never gets the store of a `forge up`: they would not match.

        Raises:
            ClientError: a server is configured, or nothing is and no `forge up` runs.
        """
        if self.url:
            raise ClientError(
                "this needs direct access to the database, but a server is configured",
                hint="on the server, `forge-server direct COMMAND` has it; elsewhere, pass"
                " --database-url and --store-url, as its server.env has them",
                code="database_not_named",
            )
        if self.database_url:
            return QueueConnection(self.database_url, self.store_url)
        # What it needs is of no use to those who have a server.
        from forge_client import running  # noqa: PLC0415

        up = running.find_loaded(self.dir)
        store_url = self.store_url or up.store_url
        return QueueConnection(up.database_url, store_url, up.dir, up.url or None)

    def note(self) -> str:
        """Return what is used, if there is a choice and nothing makes it, else ""."""
        from forge_client import default_paths, running  # noqa: PLC0415 - as above

        if self.by_login and default_paths.default_dir().exists():
            return f"no `forge up` runs: using {self.url}, where you are logged in"
        if self.url or self.database_url or self.dir:
            return ""
        return running.note()


def _login(url: str) -> str | None:
    # Most have a key, and finding the file takes a while.
    from forge_client.http import logins  # noqa: PLC0415

    return logins.kept(url)


def load(flags: Mapping[str, object], project: Mapping[str, object]) -> Settings:
    """Read the settings; flags that are None were not given.

    The location of Forge comes from the flags, else the variables, else forge.toml: a server or a
    database in an earlier layer replaces both in the later ones.

    Raises:
        ClientError: a variable is invalid, or one layer names both a server and a database.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    variables = _variables()
    try:
        settings = Settings.model_validate({**project, **variables, **given})
    except ValidationError as error:
        raise _refused(error) from error
    chosen = _chosen({"the options": given, "FORGE_* variables": variables, "forge.toml": project})
    if chosen == "url" and "store_url" in given:
        raise _conflict("a server has its own store", "leave out --store-url, or pass a database")
    by_folder = chosen == "url" and not (given.get("url") or variables.get("url"))
    others = {name: None for name in PLACES if name != chosen}
    by_variable = chosen == "url" and not given.get("url") and not by_folder
    url_named = FILE_URL if by_folder else "FORGE_URL" if by_variable else "url"
    more = {"named_by_folder": by_folder, "url_named": url_named}
    settings = settings.model_copy(update={**others, **more})
    return _with_login(_with_one_key(settings, given, variables))


def _with_login(settings: Settings) -> Settings:
    """Return settings that name nothing with the only login, unless a `forge up` runs."""
    named = (settings.url, settings.database_url, settings.dir)
    if any(named) or settings.api_key or settings.api_key_file:
        return settings
    # As below.
    from forge_client import running  # noqa: PLC0415
    from forge_client.http import logins  # noqa: PLC0415

    servers = [] if running.is_there() else logins.servers()
    if len(servers) != 1:
        return settings
    return settings.model_copy(update={"url": servers[0], "by_login": True})


def _with_one_key(
    settings: Settings, given: Mapping[str, object], variables: Mapping[str, object]
) -> Settings:
    if "api_key" in given:
        return settings.model_copy(update={"api_key_file": None, "key_named": "api_key"})
    if "api_key_file" not in given and {"api_key", "api_key_file"} <= variables.keys():
        raise _conflict("FORGE_API_KEY and FORGE_API_KEY_FILE are both set", "unset one of them")
    return settings


def _variables() -> dict[str, str]:
    """Return the FORGE_* variables that are set, by the names of their fields."""
    names = Settings.model_fields.keys() - {"named_by_folder", "by_login", "key_named", "url_named"}
    known = {name: os.environ.get(f"FORGE_{name.upper()}") for name in names}
    return {name: text for name, text in known.items() if text}


def _chosen(layers: Mapping[str, Mapping[str, object]]) -> str | None:
    """Return the name of the first layer that says where Forge is."""
    for layer, named in layers.items():
        if named.get("url") and named.get("database_url"):
            raise _conflict(
                f"both a server and a database are named by {layer}",
                "keep one: the server's URL, or the database's for direct access",
            )
        if given := [name for name in PLACES if named.get(name)]:
            return given[0]
        if layer == "the options" and named.get("dir"):
            return None
    return None


def _refused(error: ValidationError) -> ClientError:
    first = error.errors()[0]
    name = "_".join(str(part) for part in first["loc"]).upper()
    return _conflict(f"FORGE_{name}: {first['msg']}", "correct it, or unset it")


def _conflict(message: str, hint: str) -> ClientError:
    return ClientError(message, hint=hint, code="settings_invalid")
