"""`forge invite`: a line gives a person a key that nobody else has seen."""

from __future__ import annotations

import json
import re
import shlex
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from forge_client.cli.admin.login import accept
from forge_client.errors import ClientError
from forge_client.http import Server
from forge_client.http.transport import Transport
from forge_schema.model.states import Role
from support.client.command import command
from support.http.api import bearer, problem
from support.http.guest import Guest

if TYPE_CHECKING:
    from pathlib import Path

    from support.http.api import Api

ME, OWN_KEY = "/api/v1/me", "/api/v1/me/key"


def invited(api: Api, *, invitation: bool = True) -> tuple[str, str]:
    """Return the id and the text of an invitation."""
    lasts = timedelta(hours=1)
    return api.keys.create("ann", Role.SUBMITTER, lasts=lasts, invitation=invitation)


def test_people_of_a_file_get_keys_of_their_own(api: Api, tmp_path: Path) -> None:
    (tmp_path / "people.txt").write_text("ann@lab nlp  # a team\n\nben\n")
    _, text = api.keys.create("root", Role.ADMIN)
    for home in ("admin", "theirs"):
        (tmp_path / home).mkdir()
    forge = command(tmp_path / "admin", FORGE_URL=api.url, FORGE_API_KEY=text)
    ended = forge("invite", "cleo", "--file", str(tmp_path / "people.txt"), "--expires", "2d")
    assert (ended.returncode, "works once, within 2 days" in ended.stderr) == (0, True), (
        ended.stderr
    )
    assert ended.stderr.count("the team nlp is new\n") == 1
    (made, *_) = [line for line in forge("events").stdout.splitlines() if "for ben made" in line]
    assert " root " in made, made
    theirs = command(tmp_path / "theirs")
    for owner, line in zip(["cleo", "ann@lab", "ben"], ended.stdout.splitlines(), strict=True):
        program, *words = shlex.split(line)
        assert program == "forge"
        first = theirs(*words)
        assert f"as {owner} (submitter); the invitation is used up" in first.stderr, first.stderr
    again = theirs(*words)
    assert (again.returncode, "accepted already" in again.stderr) == (7, True), again.stderr
    link = theirs("dashboard", FORGE_URL=api.url).stdout
    assert link.startswith(f"{api.url}/login/link?link="), "there is no key to type"
    # What failed has not replaced the key that works.
    assert theirs("ps", FORGE_URL=api.url).returncode == 0
    keys = json.loads(forge("key", "list", "-o", "json").stdout)
    found = {key["owner"]: key for key in keys}
    assert not any(key["invitation"] or key["expires_at"] for key in keys)
    assert (found["ann@lab"]["team"], found["ben"]["team"]) == ("nlp", None)
    for words, code, said in (
        (["invite", "bad/name", "--team", "nlp"], 2, "cannot be the name of an owner"),
        (["invite", "zed", "--team", "nlpp"], 0, "the team nlpp is new: did you mean nlp?"),
        (["invite", "zed", "--team", "vision"], 0, "team vision is new; no longer in nlpp: zed"),
        (["invite", "--file", "nope.txt"], 2, "'nope.txt' does not exist"),
        (["team", "leave", "nlp", "ann@lab", "zed"], 3, "zed is not in nlp"),
        (["team", "leave", "nowhere", "zed"], 3, "no team 'nowhere'"),
    ):
        refused = forge(*words)
        assert (refused.returncode, said in refused.stderr) == (code, True), refused.stderr
    keys = json.loads(forge("key", "list", "-o", "json").stdout)
    first, second = (key["id"] for key in keys if key["owner"] == "zed")
    revoked = forge("key", "revoke", first, "--yes")
    assert f"`forge key revoke {second}` ends it" in revoked.stderr, revoked.stderr
    assert "another" not in forge("key", "revoke", second, "--yes").stderr
    assert api.rig.rows("SELECT owner FROM owner_quota WHERE team = 'nlp'") == [
        {"owner": "ann@lab"}
    ]
    assert api.rig.count("event WHERE action = 'invitation_accepted'") == 3


def test_a_key_that_is_no_invitation_keeps_its_expiry(api: Api) -> None:
    key_id, text = invited(api, invitation=False)
    answer = api.http.post(OWN_KEY, json={"secret_sha256": "0" * 64}, headers=bearer(text))
    problem(answer, 409, "not_invited")
    assert api.caller(bearer(text)).get(ME)["owner"] == "ann"
    (row,) = api.rig.rows("SELECT expires_at FROM api_key WHERE id = %s", key_id)
    assert row["expires_at"] is not None


def test_an_invitation_is_worth_nothing_once_it_is_over(api: Api) -> None:
    for end in ("revoked_at = forge_now()", "expires_at = forge_now() - interval '1 s'"):
        key_id, text = invited(api)
        api.rig.rows(f"UPDATE api_key SET {end} WHERE id = %s RETURNING id", key_id)
        with pytest.raises(ClientError, match="was revoked, or has expired"):
            accept(Server(api.url), text)
    forever = {"owner": "ben", "role": "viewer", "invitation": True}
    assert api.key("root", Role.ADMIN).call("POST", "/api/v1/admin/keys", forever).is_success
    assert api.rig.count("api_key WHERE owner = 'ben' AND expires_at < forge_now() + '8 days'") == 1


def test_an_answer_that_was_lost_costs_no_key(
    api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    _, text = invited(api)
    send = Transport.send

    def lost(self: Transport, *words: str, **more: object) -> object:
        send(self, *words, **more)  # type: ignore[arg-type]  # as it was called
        raise ClientError("nothing was heard", code="answer_lost")

    monkeypatch.setattr(Transport, "send", lost)
    accept(Server(api.url), text)
    assert api.rig.count("api_key WHERE NOT invitation AND owner = 'ann'") == 1


def test_people_are_invited_on_the_page_of_keys(api: Api, tmp_path: Path) -> None:
    root = Guest(api).login("root", Role.ADMIN)
    for wrong in ("", "ann nlp too"):
        answer = root.act("/keys/invite", people=f"ben\n{wrong}" if wrong else wrong)
        assert (answer.status_code, 'role="alert"' in answer.text) == (422, True), wrong
    assert api.rig.count("api_key WHERE invitation") == 0
    # The second has no room: the line of the first is shown, and the others can be sent again.
    api.rig.rows(
        "INSERT INTO api_key (id, owner, role, hash, created_at) SELECT 'k' || n, 'ben', 'viewer',"
        " sha256(n::text::bytea), forge_now() FROM generate_series(1, 200) AS n"
    )
    given = {"people": "ann nlp\nben\ncleo", "role": "submitter", "expiry": "1 day"}
    answer = root.act("/keys/invite", **given)
    assert answer.headers["cache-control"] == "no-store"
    (line,) = re.findall(r'<pre id="line-\d+">([^<]+)</pre>', answer.text)
    assert ">ben\ncleo</textarea>" in answer.text
    assert "not accepted yet" in root.page("/keys")
    assert line not in root.page("/keys")
    program, *words = shlex.split(line)
    accepted = command(tmp_path)(*words)
    assert (program, "as ann (submitter)" in accepted.stderr) == ("forge", True), accepted.stderr
    (key,) = api.rig.rows("SELECT id FROM api_key WHERE owner = 'ann'")
    root.act("/keys/invite", **{**given, "people": "ann"})
    root.http.headers.update({"HX-Request": "true", "HX-Current-URL": f"{api.url}/keys"})
    said = root.act("/keys/revoke", key=key["id"]).headers["hx-trigger"]
    assert "ann can still accept an invitation in the list" in said
    root.close()
