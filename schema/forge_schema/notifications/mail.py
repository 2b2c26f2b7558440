"""Send an e-mail through the mail server that an admin has named."""

import ssl
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from smtplib import SMTP, SMTP_SSL
from urllib.parse import unquote, urlsplit

from forge_schema.http_client import tls_context
from forge_schema.notifications.trying import DEADLINE_S, FAILURES, LETTER_S, deadline, saying_why
from forge_schema.proxies import is_loopback

PORTS = {"smtp": 587, "smtps": 465}


@dataclass(frozen=True, slots=True)
class MailServer:
    """A mail server, and the address that it sends from."""

    host: str
    port: int
    user: str
    password: str
    tls: bool
    sender: str

    @classmethod
    def of(cls, url: str, sender: str) -> "MailServer":
        """Parse `smtp://user:password@host:587`, or `smtps://…` for TLS from the start.

        Raises:
            ValueError: it is no such URL. The message does not quote it.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in PORTS or not parts.hostname or parts.path.strip("/"):
            raise ValueError("write a mail server as smtp://user:password@mail.example:587")
        return cls(
            host=parts.hostname,
            port=port or PORTS[parts.scheme],
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            tls=parts.scheme == "smtps",
            sender=sender,
        )


def mail(
    server: MailServer, to: str, lines: Sequence[str], links: Sequence[str], message_id: str
) -> None:
    """Send lines of text; the first is the subject. A repetition has the same Message-ID.

    Raises:
        NotSent: the server cannot be reached in time, or does not accept it.
    """
    letter = _letter(server.sender, to, lines, links, message_id)
    with saying_why():
        connection = _opened(server)
    with (
        closing(connection),
        saying_why(LETTER_S),
        deadline(LETTER_S, lambda: connection.sock),
    ):
        _sent(connection, server, letter)


def _opened(server: MailServer) -> SMTP:
    opened = (
        SMTP_SSL(server.host, server.port, timeout=DEADLINE_S, context=tls_context())
        if server.tls
        else SMTP(server.host, server.port, timeout=DEADLINE_S)
    )
    assert opened.sock is not None  # noqa: S101 - it is connected
    opened.sock.settimeout(LETTER_S)
    return opened


def _sent(connection: SMTP, server: MailServer, letter: EmailMessage) -> None:
    connection.ehlo_or_helo_if_needed()
    if connection.has_extn("starttls"):
        connection.starttls(context=tls_context())
    if server.user:
        if not isinstance(connection.sock, ssl.SSLSocket) and not is_loopback(server.host):
            raise ValueError("the mail server offers no TLS, so the password is not sent to it")
        connection.login(server.user, server.password)
    connection.send_message(letter)
    # It has been accepted, whatever becomes of a farewell.
    with suppress(*FAILURES):
        connection.quit()


def _letter(
    sender: str, to: str, lines: Sequence[str], links: Sequence[str], message_id: str
) -> EmailMessage:
    letter = EmailMessage()
    letter["From"], letter["To"] = sender, to
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    letter["Subject"] = lines[0] + more
    letter["Message-ID"] = f"<{message_id}@{sender.rpartition('@')[2]}>"
    letter["Date"] = datetime.now(UTC)
    # So that nobody's absence is answered.
    letter["Auto-Submitted"] = "auto-generated"
    letter.set_content("\n".join([*lines, "", *links]))
    return letter
