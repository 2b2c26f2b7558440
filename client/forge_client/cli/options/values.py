"""Values on the command line: durations, points in time, labels and public keys."""

import base64
import binascii
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from forge_schema.model.quantities import seconds

from forge_client.cli.show.output import Format
from forge_client.errors import ClientError, InvalidInput
from forge_client.http import checked_url

FormatOption = Annotated[
    Format, typer.Option("--output", "-o", envvar="FORGE_OUTPUT", help="How to print the data.")
]
WaitOption = Annotated[
    bool, typer.Option("--wait", help="Follow the log and exit with the job's exit code.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Check it, and list the files; submit nothing.")
]
Expires = Annotated[
    str | None, typer.Option("--expires", help="Lifetime, e.g. 30d. Default: never expires.")
]
WorkerLabelOption = Annotated[
    list[str] | None,
    typer.Option("--label", help="NAME=VALUE set by the admin; the worker cannot change it."),
]


def typed_url(url: str | None) -> str | None:
    """Return a server's URL from the command line; `InvalidInput` if it is none."""
    try:
        return url and checked_url(url)
    except ClientError as error:
        raise InvalidInput(error.message, error.hint) from error


ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server", callback=typed_url, help="The server's URL from there, if it is another one."
    ),
]
LENGTH = 32
# The bytes before the 32 bytes of the key: the algorithm's name in DER (RFC 8410), and in
# OpenSSH's format (RFC 8709).
DER = bytes.fromhex("302a300506032b6570032100")
SSH = b"\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x20"
PEM = re.compile(r"-----BEGIN PUBLIC KEY-----\s+([\w+/=\s]+?)\s+-----END PUBLIC KEY-----")
LINE = re.compile(r"ssh-ed25519 ([\w+/=]+)")


def lasting(expires: str | None) -> timedelta | None:
    """Return how long a key or token is valid; None means forever.

    Raises:
        ClientError: it is not a duration.
    """
    return None if expires is None else span("--expires", expires)


def span(option: str, text: str) -> timedelta:
    """Return an option's duration.

    Raises:
        ClientError: it is not a duration, or is shorter than a second.
    """
    try:
        duration = timedelta(seconds=seconds(text))
    except OverflowError:
        raise InvalidInput(f"{option} {text!r} is too long", "write 12h or 30d") from None
    except ValueError as error:
        fault, _, hint = str(error).partition("; ")
        raise InvalidInput(f"{option}: {fault}", hint) from error
    if duration < timedelta(seconds=1):
        raise InvalidInput(f"{option} {text!r} is below a second", "write 2s, 30m or 2d")
    return duration


def read_public_key(path: Path) -> bytes:
    """Return the 32 bytes of the Ed25519 public key in a file.

    Raises:
        ClientError: it is unreadable, or does not contain an Ed25519 public key.
    """
    try:
        return _parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _wrong(path, error.strerror or str(error)) from error
    except (ValueError, binascii.Error) as error:
        raise _wrong(path, "it holds no Ed25519 public key") from error


def _parse(text: str) -> bytes:
    for form, before in ((PEM, DER), (LINE, SSH)):
        if match := form.search(text):
            packed = base64.b64decode(match[1])
            if packed.startswith(before) and len(packed) == len(before) + LENGTH:
                return packed[len(before) :]
    raise ValueError("neither PEM nor OpenSSH")


def _wrong(path: Path, why: str) -> ClientError:
    return ClientError(
        f"--public-key-file {path}: {why}",
        hint="`openssl pkey -in private.pem -pubout` writes it, and ssh-keygen a .pub file",
        code="public_key_invalid",
    )
