"""Records of a server's answers: their fields as attributes, without pydantic's checks."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

from forge_schema.model.reading import ApprovalReading, ChunkReading, JobReading, MemberReading
from forge_schema.model.states import State, StateWord, in_words


class PlainRow:
    """A record; a field that the server does not know is None."""

    # The records and lists of records among its fields.
    records: ClassVar[Mapping[str, type["PlainRow"]]] = {}

    def __init__(self, fields: Mapping[str, Any]) -> None:
        for name, value in fields.items():
            vars(self)[name] = self._read(name, value)

    def _read(self, name: str, value: Any) -> Any:  # noqa: ANN401 - any JSON
        if value is None:
            return None
        if name == "at" or name.endswith("_at"):
            return datetime.fromisoformat(value)
        if kind := self.records.get(name):
            return [kind(one) for one in value] if isinstance(value, list) else kind(value)
        return value

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as above
        if name.startswith("_"):
            raise AttributeError(name)
        return None


class ApprovalRow(ApprovalReading, PlainRow):
    """What an admin has to approve."""


class MemberRow(MemberReading, PlainRow):
    """A rank of a job."""


class JobRow(JobReading, PlainRow):
    """A job, as it is listed or in detail."""

    records: ClassVar[Mapping[str, type[PlainRow]]] = {
        "approval": ApprovalRow,
        "members": MemberRow,
        "firing": PlainRow,
    }

    def __init__(self, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        # A server of 0.2 may say the queue's own states.
        self.exhausted = bool(fields.get("exhausted")) or fields["state"] == State.DEAD
        self.state = StateWord(in_words(fields["state"]))


class ExplanationRow(PlainRow):
    """Why a job waits."""

    records: ClassVar[Mapping[str, type[PlainRow]]] = {"limits": PlainRow, "remedies": PlainRow}


class ChunkRow(ChunkReading, PlainRow):
    """A piece of a job's output."""
