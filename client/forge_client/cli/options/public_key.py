"""Ed25519 public keys in the common formats: PEM, or a line in OpenSSH's format."""

import base64
import binascii
import re
from pathlib import Path

from forge_client.errors import ClientError

LENGTH = 32
# The bytes before the 32 bytes of the key: the algorithm's name in DER (RFC 8410), and in
# OpenSSH's format (RFC 8709).
DER = bytes.fromhex("302a300506032b6570032100")
SSH = b"\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x20"
PEM = re.compile(r"-----BEGIN PUBLIC KEY-----\s+([\w+/=\s]+?)\s+-----END PUBLIC KEY-----")
LINE = re.compile(r"ssh-ed25519 ([\w+/=]+)")


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
