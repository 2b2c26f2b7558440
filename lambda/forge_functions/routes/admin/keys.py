"""API keys, for admins."""

from http import HTTPStatus
from typing import Annotated

from forge_schema.model.admin import ApiKey
from forge_schema.model.fields import Text, Word
from forge_schema.model.states import Role
from pydantic import BaseModel, Field

from forge_functions.auth.roles import AsAdmin
from forge_functions.errors import problems
from forge_functions.items import Done, Items
from forge_functions.middleware.bodies import Body, LastsS, PublicKey, lasting, public_key_of
from forge_functions.middleware.guarded_route import Router

router = Router(prefix="/api/v1/admin/keys", tags=["admin"], responses=problems(401, 403))


class NewKey(Body):
    """An API key to create: its owner and its role."""

    owner: Annotated[Word, Field(examples=["ann"])]
    role: Annotated[Role, Field(examples=["submitter"])]
    name: Annotated[Text, Field(max_length=200)] = ""
    lasts_s: LastsS = None
    public_key: PublicKey = None


class Made(BaseModel):
    """A key and its text, which cannot be read again."""

    id: str
    token: str


class Rotated(BaseModel):
    """The new text, which cannot be read again. The old one is invalid."""

    token: str


@router.get("")
def list_keys(service: AsAdmin) -> Items[ApiKey]:
    """List all keys, newest first."""
    return Items(items=service.admin.api_keys())


@router.post("", status_code=HTTPStatus.CREATED)
def create(service: AsAdmin, new: NewKey) -> Made:
    """Create a key. If the answer was lost, revoke the key and create another."""
    made = service.admin.create_key(
        new.owner,
        new.role,
        name=new.name,
        lasts=lasting(new.lasts_s),
        public_key=public_key_of(new.public_key),
    )
    return Made(id=made.id, token=made.text)


@router.delete("/{key_id}", responses=problems(404))
def revoke(service: AsAdmin, key_id: Word) -> Done:
    """Revoke a key for good, with every token made from it. Idempotent."""
    service.admin.revoke_key(key_id)
    return Done()


@router.post("/{key_id}/token", responses=problems(404))
def rotate(service: AsAdmin, key_id: Word) -> Rotated:
    """Replace a key's text. The old one and every token made from it are invalid at once."""
    return Rotated(token=service.admin.rotate_key(key_id))
