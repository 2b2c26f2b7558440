"""The client's settings: flags before FORGE_* variables before forge.toml."""

import getpass
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from forge_client import running
from forge_client.errors import ClientError
from forge_client.exit_codes import ExitCode


def login_name() -> str:
    """Return the user's name, or one made of the user id where the system knows none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return f"uid-{os.getuid()}"


@dataclass(frozen=True)
class Connection:
    """Which database and store to use; `up_dir` is the folder of the `forge up` that named them."""

    database_url: str
    store_url: str | None
    up_dir: Path | None = None

    def store(self) -> str:
        """Return the store's URL.

        Raises:
            ClientError: none was named.
        """
        if self.store_url is None:
            raise ClientError(
                "a database is named, but no store",
                hint="set FORGE_STORE_URL, or pass --store-url",
                code="store_not_named",
                exit_code=ExitCode.SETUP,
            )
        return self.store_url


class Settings(BaseSettings):
    """Where Forge is, and who asks."""

    model_config = SettingsConfigDict(env_prefix="FORGE_", env_ignore_empty=True, extra="ignore")

    database_url: str | None = None
    store_url: str | None = None
    dir: Path | None = None
    owner: str = Field(default_factory=login_name)

    def connection(self) -> Connection:
        """Return what is named, or else what a running `forge up` wrote.

        A named database never gets the store of a `forge up`: they would not belong together.

        Raises:
            ClientError: nothing is named and no `forge up` runs.
        """
        if self.database_url:
            return Connection(self.database_url, self.store_url)
        up = running.find(self.dir)
        return Connection(up.database_url, self.store_url or up.store_url, up.dir)


def load(flags: Mapping[str, object], project: Mapping[str, object]) -> Settings:
    """Read the settings; flags that are None were not given.

    Args:
        flags: what the command line says.
        project: the `[connection]` table of forge.toml.
    """

    class Layered(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            del dotenv_settings, file_secret_settings
            return init_settings, env_settings, InitSettingsSource(settings_cls, dict(project))

    given = {name: value for name, value in flags.items() if value is not None}
    return Layered(**given)  # type: ignore[arg-type]  # pydantic checks them
