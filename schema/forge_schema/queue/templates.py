"""What an owner keeps by name, to submit with: templates, and the sources of inputs."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from psycopg.types.json import Jsonb

from forge_schema.database.pool import Database, Row
from forge_schema.model.errors import ForgeError, nearest
from forge_schema.model.spec.inputs import is_name
from forge_schema.queue.inputs import InputUnknown


class NoSuchTemplate(ForgeError):
    """The owner has no template with this name."""

    code = "template_not_found"


class Named:
    """The things of one kind that an owner keeps by name."""

    kind: ClassVar[str]
    called: ClassVar[str]
    missing: ClassVar[type[ForgeError]]

    def __init__(self, database: Database, *, owner: str, actor: str) -> None:
        self._database = database
        self._owner = owner
        self._actor = actor

    def listed(self) -> list[Row]:
        """Return all of the owner, by name."""
        return self._database.rows(f"{self.kind}s", again=True, owner=self._owner)

    def remove(self, name: str) -> None:
        """Remove one; `ForgeError` if there is none with this name."""
        gone = self._database.row(
            f"delete_{self.kind}", owner=self._owner, name=name, actor=self._actor
        )
        if gone is None:
            raise self._unknown(name)

    def _put(self, name: str, **content: Any) -> None:  # noqa: ANN401 - columns of all types
        params = {"owner": self._owner, "name": name, "actor": self._actor}
        self._database.row(f"put_{self.kind}", again=True, **params, **content)

    def _unknown(self, name: str) -> ForgeError:
        near = nearest(name, (row["name"] for row in self.listed()))
        return self.missing(
            f"{self._owner} has no {self.called} {name!r}",
            hint=f"{near}`forge {self.kind} list` lists them",
        )


class Templates(Named):
    """The templates of one owner. A config is validated only when a job is submitted."""

    kind, called, missing = "template", "template", NoSuchTemplate

    def keep(self, name: str, spec: Mapping[str, Any]) -> None:
        """Store a config under a name, replacing any previous one."""
        self._put(name, spec=Jsonb(dict(spec)))

    def get(self, name: str) -> Row:
        """Return a config: `name`, `spec`, `updated_at`.

        Raises:
            NoSuchTemplate: there is none with this name.
        """
        row = self._database.row("template", again=True, owner=self._owner, name=name)
        if row is None:
            raise self._unknown(name)
        return row


class RegisteredInputs(Named):
    """The sources of inputs that an owner registered under names."""

    kind, called, missing = "input", "registered input", InputUnknown

    def keep(self, name: str, source: str) -> None:
        """Register a source under a name, replacing any previous one."""
        self._put(name, source=source)

    def resolved(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs of a job with sources instead of their names.

        Raises:
            InputUnknown: no source is registered under a name.
        """
        return {name: self._source(text) for name, text in inputs.items()}

    @cached_property
    def _sources(self) -> Mapping[str, str]:
        return {row["name"]: row["source"] for row in self.listed()}

    def _source(self, text: Any) -> Any:  # noqa: ANN401 - any input
        if not is_name(text):
            return text
        if text not in self._sources:
            raise self._unknown(text)
        return self._sources[text]
