"""API keys, for admins."""

import base64
from http import HTTPStatus
from typing import Annotated

from forge_schema.access.api_keys import Keys
from forge_schema.model.admin import ApiKey
from forge_schema.model.fields import Text, Word
from forge_schema.model.states import Role
from pydantic import BaseModel, Field

from forge_functions.auth.caller import Admin
from forge_functions.errors import problems
from forge_functions.items import Done, Items, Rows
from forge_functions.middleware.bodies import Body, LastsS, lasting
from forge_functions.middleware.guarded_route import Router
from forge_functions.services import Shared

router = Router(prefix="/api/admin/keys", tags=["admin"], responses=problems(401, 403))
# 32 bytes: the last letter before the sign holds four bits.
PUBLIC_KEY = "^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$"


class NewKey(Body):
    """An API key: for whose jobs, and what it may do."""

    owner: Annotated[Word, Field(examples=["ann"])]
    role: Annotated[Role, Field(examples=["submitter"])]
    name: Annotated[Text, Field(max_length=200)] = ""
    lasts_s: LastsS = None
    public_key: (
        Annotated[
            str,
            Field(
                pattern=PUBLIC_KEY,
                description="an Ed25519 key in base64; every request has to be signed with it",
            ),
        ]
        | None
    ) = None


class Made(BaseModel):
    """A key, and its text, which nobody can read again."""

    id: str
    token: str


class Rotated(BaseModel):
    """The new text, which alone is valid now, and which nobody can read again."""

    token: str


@router.get("", response_model=Items[ApiKey])
def list_keys(who: Admin, shared: Shared) -> Rows:
    """List every key, the newest first."""
    return {"items": Keys(shared.database, actor=who.actor).listed()}


@router.post("", status_code=HTTPStatus.CREATED)
def create(who: Admin, shared: Shared, new: NewKey) -> Made:
    """Make a key. When the answer was lost, revoke it and make another."""
    made = Keys(shared.database, actor=who.actor).create(
        new.owner,
        new.role,
        name=new.name,
        lasts=lasting(new.lasts_s),
        public_key=base64.b64decode(new.public_key) if new.public_key else None,
    )
    return Made(id=made[0], token=made[1])


@router.delete("/{key_id}", responses=problems(404))
def revoke(who: Admin, shared: Shared, key_id: Word) -> Done:
    """Revoke a key for good, and every token made from it. A repeat changes nothing."""
    Keys(shared.database, actor=who.actor).revoke(key_id)
    return Done()


@router.post("/{key_id}/token", responses=problems(404))
def rotate(who: Admin, shared: Shared, key_id: Word) -> Rotated:
    """Give a key a new text; the one before is invalid at once, as is every token made from it."""
    return Rotated(token=Keys(shared.database, actor=who.actor).rotate(key_id))
