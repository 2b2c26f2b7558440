"""The functions' zip brings the authorities with which they verify their database."""

from __future__ import annotations

import runpy
import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import certifi
import psycopg
import pytest
from support.cloud.cloudformation import INFRA, of_type, translated
from support.http.certificates import certificates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.http.certificates import Certificates

# A message of Postgres' protocol: an error with a severity, a code and a text.
FIELDS = b"SFATAL\0C57P03\0Mreached over TLS\0\0"
REACHED = b"E" + (len(FIELDS) + 4).to_bytes(4, "big") + FIELDS


@contextmanager
def tls_postgres(made: Certificates) -> Iterator[str]:
    """Accept one connection as Postgres does, and refuse it once it is encrypted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.server, made.key)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.recv(8)
                connection.sendall(b"S")
                with context.wrap_socket(connection, server_side=True) as encrypted:
                    encrypted.recv(1 << 16)
                    encrypted.sendall(REACHED)

        thread = threading.Thread(target=answer)
        thread.start()
        port = listener.getsockname()[1]
        yield f"postgresql://forge@127.0.0.1:{port}/forge?sslmode=verify-full"
        thread.join(60)


@pytest.mark.parametrize(
    ("given", "said"), [(True, "reached over TLS"), (False, "certificate verify failed")]
)
def test_a_database_is_trusted_if_its_authority_was_given(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: bool,  # noqa: FBT001  a parameter of the test
    said: str,
) -> None:
    script = runpy.run_path(str(INFRA / "lambda_zip.py"))
    made = certificates(tmp_path)
    tree = tmp_path / "tree"
    (tree / "certifi").mkdir(parents=True)
    (tree / "certifi" / "cacert.pem").write_bytes(Path(certifi.where()).read_bytes())
    script["trust"](tree, made.authority if given else None)
    monkeypatch.setenv("PGSSLROOTCERT", str(tree / script["AUTHORITIES"]))
    with tls_postgres(made) as url, pytest.raises(psycopg.OperationalError, match=said):
        psycopg.connect(url)


def test_every_function_is_told_where_they_are() -> None:
    script = runpy.run_path(str(INFRA / "lambda_zip.py"))
    for function in of_type(translated(), "AWS::Lambda::Function").values():
        told = function["Environment"]["Variables"]["PGSSLROOTCERT"]
        assert told == f"{script['PLACE']}/{script['AUTHORITIES']}"
