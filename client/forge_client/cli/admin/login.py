"""`forge login`, `forge logout` and `forge dashboard`: keys and links for here and a browser."""

import os
import platform
import re
import secrets
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Annotated
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import typer
from forge_schema.http_client import challenge_of
from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import duration_text, span_text
from forge_schema.own_authority import vouched
from forge_schema.service.caller import key_of_invitation
from forge_schema.service.verb import API

from forge_client.cli.options.session import settings_of
from forge_client.cli.options.values import typed_url
from forge_client.cli.show import narration
from forge_client.errors import ClientError, ExitCode, InvalidInput, NotAllowed, as_client_error
from forge_client.http import Server, logins
from forge_client.http.health import require_server
from forge_client.http.transport import Transport
from forge_client.login_link import login_link

PAGE = "/login/terminal"
FIELDS = ("token", "expires_in_s", "owner", "role")
PATIENCE_S = 300.0
BACK = b"You can close this window, and go back to the terminal.\n"
# A text browser in the terminal would take it from us.
GRAPHICAL = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
CODE = re.compile(r"[0-9a-f-]{1,200}")


def login(
    context: typer.Context,
    url: Annotated[
        str | None, typer.Argument(metavar="[URL]", help="The server; default: the one in use.")
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Open the page yourself, and paste its code.")
    ] = False,
    invitation: Annotated[
        str | None, typer.Option(help="What an admin's `forge invite` printed; it works once.")
    ] = None,
    authority: Annotated[
        str | None, typer.Option(help="SHA-256 of the server's own authority, as in that line.")
    ] = None,
) -> None:
    """Log in to the server through your browser, with single sign-on if the server has it.

    The key is kept on this machine for this server until your browser's session would expire;
    `forge logout` ends it, and logging out in the browser does not. An API key that is set is used
    instead. With an invitation, the key is yours until an admin revokes it.
    """
    if authority is not None:
        _trust(_server(context, url).url, authority)
    server = _server(context, url)
    if invitation is not None:
        accept(server, invitation)
        _tell_how(context, server)
        return
    require_server(server)
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    asked = {"challenge": challenge_of(verifier), "state": state}
    page = f"{server.url}{PAGE}?{urlencode(asked)}"
    by_hand = no_browser or not _has_browser()
    code = _pasted(page) if by_hand else _from_browser(page, state)
    grant = _exchanged(server, code, verifier)
    logins.keep(server.url, grant["token"])
    lasts = duration_text(float(grant["expires_in_s"]))
    narration.say(f"logged in to {server.url} as {grant['owner']} ({grant['role']}), for {lasts}")
    _tell_how(context, server)


def _trust(url: str, authority: str) -> None:
    """Trust the authority of this fingerprint for this server, from now on and for no other."""
    try:
        with as_client_error():
            certificate = vouched(url, authority)
    except httpx.HTTPError as error:
        raise ClientError(
            f"{url} does not answer: {error}",
            hint="check the URL, and that this machine reaches the server",
            code="server_unreachable",
        ) from error
    logins.keep_authority(url, certificate)


def accept(server: Server, invitation: str) -> None:
    """Make an invitation a key of this user's own, whose secret nobody else has seen.

    It is kept before it counts: the answer may be lost. Then the key tells by working.

    Raises:
        ClientError: it is no invitation, or not any more.
    """
    former = logins.kept(server.url)
    try:
        text, digest = key_of_invitation(invitation)
    except ForgeError as error:
        raise InvalidInput(f"--invitation: {error.message}", error.hint) from error
    logins.keep(server.url, text)
    try:
        with closing(Transport(_as(server, invitation))) as asked:
            asked.send("POST", f"{API}/me/key", {"secret_sha256": digest}, again=False)
    except ClientError as error:
        if not _works(server, text):
            logins.keep(server.url, former) if former else logins.forget(server.url)
            if isinstance(error, NotAllowed):
                raise ClientError(
                    "this invitation was accepted already, was revoked, or has expired",
                    hint="ask an admin for another one: `forge invite OWNER`",
                    code="not_invited",
                    exit_code=ExitCode.DENIED,
                ) from error
            raise
    with closing(Transport(_as(server, text))) as asked:
        me = asked.get(f"{API}/me")
        owner, role = asked.field(me, "owner"), asked.field(me, "role")
    narration.say(f"logged in to {server.url} as {owner} ({role}); the invitation is used up")


def _works(server: Server, key: str) -> bool:
    with suppress(ClientError), closing(Transport(_as(server, key))) as asked:
        asked.get(f"{API}/me")
        return True
    return False


def _tell_how(context: typer.Context, server: Server) -> None:
    if settings_of(context).url is None:
        narration.say(f"`export FORGE_URL={server.url}` has the other commands use it")
    if server.key and not server.login:
        narration.say("an API key is set too (FORGE_API_KEY or --api-key-file), and is used first")


def logout(
    context: typer.Context,
    url: Annotated[
        str | None, typer.Argument(metavar="[URL]", help="The server; default: the one in use.")
    ] = None,
) -> None:
    """End this machine's login to the server."""
    server = _server(context, url)
    key = logins.kept(server.url)
    if key is None:
        narration.say(f"there is no login to {server.url} on this machine")
        return
    try:
        with closing(Transport(_as(server, key))) as asked:
            asked.send("DELETE", f"{PAGE}/key", again=True)
    except NotAllowed:
        pass  # It is over already.
    logins.forget(server.url)
    narration.say(f"logged out of {server.url}")


def _server(context: typer.Context, url: str | None = None) -> Server:
    settings = settings_of(context)
    if url is not None:
        settings = settings.model_copy(update={"url": typed_url(url)})
    if settings.url is None:
        raise ClientError(
            "no server is named",
            hint=f"name it: `{context.command_path} URL`, FORGE_URL or `url` in forge.toml",
            code="server_not_named",
        )
    return settings.server()


def _as(server: Server, key: str) -> Server:
    return replace(server, key=key, signing_key=None, login=False)


def _exchanged(server: Server, code: str, verifier: str) -> dict[str, str]:
    body = {"verifier": verifier, "name": f"forge login on {platform.node()}"[:200]}
    with closing(Transport(_as(server, code))) as asked:
        answer = asked.send("POST", f"{PAGE}/key", body, again=False)
        return {name: asked.field(answer, name) for name in FIELDS}


def _has_browser() -> bool:
    if sys.platform in {"darwin", "win32"}:
        return "SSH_CONNECTION" not in os.environ
    return any(map(os.environ.get, GRAPHICAL))


def _pasted(page: str) -> str:
    narration.say(f"log in on this page, on any machine: {page}")
    code = str(typer.prompt("the code that it shows", err=True)).strip()
    if not CODE.fullmatch(code):
        raise ClientError(
            "this is not the code of the page",
            hint="run `forge login` again, and paste what the page shows after you allowed it",
            code="login_failed",
        )
    return code


def _from_browser(page: str, state: str) -> str:
    with _listening(state) as (port, codes):
        page = f"{page}&port={port}"
        narration.say(f"log in in your browser: {page}")
        webbrowser.open(page)
        try:
            return codes.get(timeout=PATIENCE_S)
        except Empty:
            raise ClientError(
                f"nobody logged in within {span_text(PATIENCE_S)}",
                hint="run `forge login` again; if your browser is elsewhere, with --no-browser",
                code="login_failed",
            ) from None


@contextmanager
def _listening(state: str) -> Iterator[tuple[int, SimpleQueue[str]]]:
    """Listen on this machine; yield the port, and the codes with which browsers come to it."""
    codes: SimpleQueue[str] = SimpleQueue()

    class Visit(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = {name: value[0] for name, value in parse_qs(urlsplit(self.path).query).items()}
            ours = secrets.compare_digest(query.get("state", "").encode(), state.encode())
            self.send_response(200 if ours else 404)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.end_headers()
            if ours:
                self.wfile.write(BACK)
                codes.put(query.get("code", ""))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its own name
            """Print nothing: the path has the code."""

    # With threads, since browsers also open connections on which they send nothing.
    with ThreadingHTTPServer(("127.0.0.1", 0), Visit) as listener:
        thread = Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield listener.server_address[1], codes
        finally:
            listener.shutdown()
            thread.join()


def dashboard(
    context: typer.Context,
    show: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
) -> None:
    """Print a link that logs you in to the dashboard once, within a minute.

    It logs in as your API key does; for a `forge up`, as an admin whose key lasts 12 hours. Where
    you logged in through your browser, it is only the address.
    """
    settings = settings_of(context)
    link = login_link(settings)
    print(link)  # noqa: T201 - the data
    if authority := settings.url and settings.trusted(settings.url):
        narration.say(f"a browser warns of a server whose authority it lacks: {authority} is it")
    if show and not webbrowser.open(link):
        narration.say("no browser could be started here; open the link yourself")
