"""`forge login`: a session in a browser gives the command a key of its own."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import httpx
import pytest
from forge_schema.model.states import Role
from support.client.command import command
from support.http.api import bearer, problem
from support.http.guest import Guest, shown_code

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.http.api import Api

ME = "/api/v1/me"
VERIFIER = "v" * 43


@pytest.fixture
def guest(api: Api) -> Iterator[Guest]:
    guest = Guest(api)
    yield guest
    guest.close()


def named(process: subprocess.Popen[str]) -> str:
    """Return the page that a started `forge login` names."""
    assert process.stderr is not None
    return process.stderr.readline().split()[-1]


def kept(folder: Path) -> Path:
    (file,) = folder.glob("home/state/forge/logins/*")
    return file


def exchanged(api: Api, code: str, verifier: str = VERIFIER) -> httpx.Response:
    return api.http.post("/login/terminal/key", json={"verifier": verifier}, headers=bearer(code))


def test_the_browser_comes_back_with_a_code(api: Api, guest: Guest, tmp_path: Path) -> None:
    guest.login("ann", Role.SUBMITTER)
    forge = command(tmp_path, FORGE_URL=f"{api.url}/")
    with forge.started("login", f"{api.url}/", BROWSER="true", FORGE_URL="") as process:
        to = guest.allow(named(process)).headers["refresh"].partition("url=")[2]
        # Another page of the browser, which may only guess.
        assert httpx.get(to.replace("state=", "state=x")).status_code == 404
        assert "close this window" in httpx.get(to).text
        _, said = process.communicate(timeout=60)
    assert said.splitlines() == [f"logged in to {api.url} as ann (submitter), for 12 h"]
    file = kept(tmp_path)
    assert file.stat().st_mode & 0o777 == 0o600
    assert forge("ps").returncode == 0
    # The only login is used where nothing else is named; of several, one has to be.
    assert forge("ps", FORGE_URL="").returncode == 0
    other = file.with_name("http%3A%2F%2Fother.example")
    other.write_text("fgk_other")
    assert f"logged in to: {api.url} or http://other.example" in forge("ps", FORGE_URL="").stderr
    other.unlink()
    # A key that is given comes first, and its refusal is not the login's.
    wrong = forge("ps", FORGE_API_KEY="fgk_wrong")
    assert (wrong.returncode, "forge login" in wrong.stderr) == (7, False)
    assert api.caller(bearer(file.read_text())).get(ME)["actor"] == f"key:{guest.key_id}"
    assert forge("dashboard").stdout == f"{api.url}/\n"
    # The login ends with the key that began it.
    api.keys.revoke(guest.key_id)
    over = forge("ps")
    assert (over.returncode, "run `forge login`" in over.stderr) == (7, True), over.stderr
    assert forge("logout", f"{api.url}/", FORGE_URL="").returncode == 0
    assert not file.exists()


def test_a_code_is_pasted_where_there_is_no_browser(api: Api, guest: Guest, tmp_path: Path) -> None:
    guest.login("ann", Role.VIEWER)
    forge = command(tmp_path, FORGE_URL=api.url)
    with forge.started("login", stdin=subprocess.PIPE, DISPLAY="") as process:
        _, said = process.communicate(f"{shown_code(guest.allow(named(process)))}\n", timeout=60)
    assert "logged in" in said, said
    key = kept(tmp_path).read_text()
    assert forge("ps").returncode == 0
    assert f"logged out of {api.url}" in forge("logout").stderr
    problem(api.caller(bearer(key)).call("GET", ME), 401, "unauthenticated")
    # The browser's own session goes on.
    guest.page("/queues")
    assert "run `forge login`" in forge("ps").stderr
    again = forge("logout")
    assert (again.returncode, "there is no login" in again.stderr) == (0, True)
    with forge.started("login", "--no-browser", stdin=subprocess.PIPE) as process:
        _, said = process.communicate("schön\n", timeout=60)
    assert "this is not the code of the page" in said


def test_a_code_is_good_once_soon_and_for_who_began(api: Api, guest: Guest) -> None:
    guest.login("ann", Role.VIEWER)
    code = guest.login_code(VERIFIER)
    assert exchanged(api, code, "w" * 43).status_code == 401
    assert [exchanged(api, code).status_code for _ in range(2)] == [200, 401]
    api.rig.clock.advance(1)
    late = guest.login_code(VERIFIER)
    api.rig.clock.advance(301)
    assert exchanged(api, late).status_code == 401
    assert exchanged(api, late.replace("-1", "-2", 1)).status_code == 401
    rotated = guest.login_code(VERIFIER)
    api.keys.rotate(guest.key_id)
    assert exchanged(api, rotated).status_code == 401
    for text in ("a.b.c", "x", code.replace("-", "_")):
        assert exchanged(api, text).status_code == 401


def test_what_is_no_login_is_not_ended_by_a_logout(api: Api) -> None:
    answer = api.key("ann").call("DELETE", "/login/terminal/key")
    assert "no login" in problem(answer, 403, "forbidden")
    assert api.http.delete("/login/terminal/key").status_code == 401
