"""The page of registered inputs."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from forge_schema.model.states import Role
from support.http.guest import Guest

if TYPE_CHECKING:
    from support.http.api import Api

SET = {"name": "<set>", "source": "folder:sets"}


def test_an_input_is_registered_and_removed_on_its_page(api: Api) -> None:
    with closing(Guest(api).login("ann", Role.SUBMITTER)) as ann:
        for wrong in ({"name": ""}, {"source": "ftp://x"}, {"source": "artifact:0"}):
            answer = ann.act("/inputs/add", **{**SET, **wrong})
            assert (answer.status_code, 'role="alert"' in answer.text) == (422, True), wrong
        # The second time is that of somebody who saw no answer.
        for _ in range(2):
            answer = ann.act("/inputs/add", name="sets", source="folder:sets")
            assert (answer.status_code, answer.headers["location"]) == (303, "/inputs")
        other = ann.act("/inputs/add", name="sets", source="folder:others")
        assert (other.status_code, "Remove it first" in other.text) == (422, True)
        assert 'value="folder:others"' in other.text
        assert "<code>folder:sets</code>" in ann.page("/inputs?part=rows")
        for owner, role, sees in (("ann", Role.VIEWER, True), ("bob", Role.SUBMITTER, False)):
            with closing(Guest(api).login(owner, role)) as guest:
                page = guest.page("/inputs")
                assert ("folder:sets" in page) is sees
                assert "/inputs/remove" not in page
        ann.act("/inputs/remove", name="sets")
        assert "No inputs are registered yet" in ann.page("/inputs")
