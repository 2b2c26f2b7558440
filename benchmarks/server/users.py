"""The users of a benchmark's queue."""

from forge_schema.access.api_keys import Keys
from forge_schema.database.pool import Database
from forge_schema.model.states import Role


def users_of(url: str) -> dict[str, dict[str, str]]:
    """Create the users' keys, and return their headers."""
    roles = {"ann": Role.SUBMITTER, "eve": Role.SUBMITTER, "bob": Role.VIEWER, "root": Role.ADMIN}
    with Database(url) as queue:
        keys = Keys(queue, actor="user:root")
        made = {owner: keys.create(owner, role)[1] for owner, role in roles.items()}
    return {owner: {"Authorization": f"Bearer {key}"} for owner, key in made.items()}
