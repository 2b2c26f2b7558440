"""Records are read across versions, and described exactly."""

from __future__ import annotations

from forge_schema.model.fields import Open, Record
from forge_schema.model.states import State


class Seen(Record):
    """How a job was seen, and how many are in which state."""

    state: Open[State]
    counts: dict[Open[State], int]
    before: Open[State] | None = None


NEWER = '{"state":"frozen","counts":{"ready":1,"frozen":2},"before":"ready"}'


def test_a_word_and_a_field_of_a_newer_version_are_no_trouble() -> None:
    seen = Seen.model_validate_json(NEWER[:-1] + ',"shown":true}')
    assert (seen.state, seen.before) == ("frozen", State.READY)
    assert not seen.state.terminal
    assert [seen.counts[state] for state in (State.READY, seen.state)] == [1, 2]
    assert seen.model_dump_json() == NEWER


def test_the_schema_lists_the_known_words_and_every_field_that_is_told() -> None:
    schema = Seen.model_json_schema(mode="serialization")
    assert schema["$defs"]["State"]["enum"] == list(State)
    assert schema["properties"]["state"] == {"$ref": "#/$defs/State"}
    assert schema["required"] == ["state", "counts", "before"]
