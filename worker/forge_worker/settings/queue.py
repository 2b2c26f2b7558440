"""The worker's settings about the queue: by a URL and a token, or by database and store."""

from pathlib import Path
from typing import Annotated, Self

from forge_schema.access.tokens import TokenKind, parse
from forge_schema.model.errors import ForgeError
from pydantic import BeforeValidator, Field, PositiveFloat, SecretStr, model_validator
from pydantic_settings import NoDecode

from forge_worker.queue.server_url import urls
from forge_worker.settings.acts import ActSettings

HOW = "give --url and --token, or --database-url and --store-url"
File = Annotated[Path | None, BeforeValidator(lambda said: said or None)]


class TokenUnusable(ForgeError):
    """The file of the worker's token cannot be read, or holds none."""

    code = "token_unusable"


class QueueSettings(ActSettings):
    """Where the jobs come from; `--status` and the like need none of it."""

    url: Annotated[list[str], NoDecode, BeforeValidator(urls)] = Field(
        default_factory=list,
        description="a forge-server, https://…; several, by commas: the first is preferred",
    )
    token: SecretStr | None = Field(None, description="the worker's token, which an admin made")
    token_file: File = Field(
        None, description="a file with the token; read again when the token is refused"
    )
    tls_ca: File = Field(None, description="certificates to trust besides the usual ones, PEM")
    insecure_skip_verify: bool = Field(
        default=False, description="check no certificates; for development alone"
    )
    reconnect_limit_s: PositiveFloat = Field(
        15.0,
        description="seconds that a server or database that is away is left alone, at most",
    )
    database_url: str = Field("", description="instead: the queue's database, postgresql://…")
    prepare: bool = Field(default=True, description="off behind a transaction-mode pooler")
    store_url: str = Field(
        "", description="and the object store, s3://bucket/prefix or file:///folder"
    )

    @property
    def queue_is_named(self) -> bool:
        return bool(self.url or (self.database_url and self.store_url))

    @model_validator(mode="after")
    def _one_way_to_the_queue(self) -> Self:
        if self.url and self.database_url:
            raise ValueError(f"{HOW}, not both: a URL and a database are named")
        works = self.queue_is_named and not self.acts
        if self.json_output and not (self.status or works):
            raise ValueError("--json goes with --status")
        if not self.queue_is_named and not self.acts:
            if self.database_url:
                raise ValueError(f"--store-url is not named: {HOW}")
            raise ValueError(
                f"the queue is not named, and no `forge up` runs here: start one, or {HOW}"
            )
        return self

    @model_validator(mode="after")
    def _token_for_a_url(self) -> Self:
        given = self.token is not None and self.token.get_secret_value() != ""
        if not self.url or (self.acts and not given and not self.token_file):
            return self
        if given and self.token_file:
            raise ValueError("give --token or --token-file, not both")
        if not given and not self.token_file:
            raise ValueError("--url needs --token or --token-file: an admin makes a token")
        try:
            self.worker_token()
        except ForgeError as error:
            raise ValueError(f"{error.message} ({error.hint})") from error
        return self

    def worker_token(self) -> str:
        """Return the worker's token, from its file as that is now.

        Raises:
            TokenUnusable: there is none to be read.
            TokenMalformed: it is none, or not whole.
        """
        if self.token_file is None:
            text = "" if self.token is None else self.token.get_secret_value().strip()
        else:
            text = _read(self.token_file)
        parse(text, TokenKind.WORKER)
        return text


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise TokenUnusable(
            f"the token's file {file} cannot be read: {why}", hint="it holds the token and no more"
        ) from error
