"""Templates: an owner's named job configurations, to submit by name."""

from collections.abc import Mapping
from typing import Any

from psycopg.types.json import Jsonb

from forge_schema.database.pool import Database, Row
from forge_schema.model.errors import ForgeError


class NoSuchTemplate(ForgeError):
    """The owner has no job config with this name."""

    code = "template_not_found"


class Templates:
    """The job configs of one owner. A config is validated only when a job is submitted."""

    def __init__(self, database: Database, *, owner: str, actor: str) -> None:
        self._database = database
        self._owner = owner
        self._actor = actor

    def keep(self, name: str, spec: Mapping[str, Any]) -> None:
        """Store a config under a name, replacing any previous one."""
        params = {"owner": self._owner, "name": name, "actor": self._actor}
        self._database.one("put_template", again=True, spec=Jsonb(dict(spec)), **params)

    def get(self, name: str) -> Row:
        """Return a config: `name`, `spec`, `updated_at`.

        Raises:
            NoSuchTemplate: there is none with this name.
        """
        row = self._database.one("template", again=True, owner=self._owner, name=name)
        if row is None:
            raise _unknown(self._owner, name)
        return row

    def listed(self) -> list[Row]:
        """Return every config of the owner, by name."""
        return self._database.rows("templates", again=True, owner=self._owner)

    def remove(self, name: str) -> None:
        """Remove a config.

        Raises:
            NoSuchTemplate: there is none with this name.
        """
        gone = self._database.one(
            "delete_template", owner=self._owner, name=name, actor=self._actor
        )
        if gone is None:
            raise _unknown(self._owner, name)


def _unknown(owner: str, name: str) -> NoSuchTemplate:
    return NoSuchTemplate(
        f"{owner} has no job config {name!r}", hint="`forge template list` lists them"
    )
