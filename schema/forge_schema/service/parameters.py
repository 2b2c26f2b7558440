"""Types of the verbs' parameters: their bounds, and how they travel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from forge_schema.job_filter import parse
from forge_schema.model.fields import MOST_TAGS, NUMERIC, TAG, Flag, Id, KnownState, Text, Word
from forge_schema.model.job import (
    LONGEST_NOTE,
    MOST_SHOWN,
    checked_note,
    checked_tags,
    job_states,
    possible_job,
)
from forge_schema.model.reading import INTEGER, LARGEST, SMALLINT
from forge_schema.model.stored import PAGE
from forge_schema.service.verb import Sent


def _own(owner: str | None, own: str | None) -> str | None:
    return owner or own


def _seen(query: str, owner: str | None) -> str:
    wanted = parse(query)
    return str(wanted.seen_by(owner) if owner else wanted)


def _states(words: Sequence[str] | None, _owner: str | None) -> Sequence[str] | None:
    # Refused here, as it is without a server.
    job_states(words or ())
    return words


# In paths and queries, which have only text.
JobId = Annotated[int, Sent(write=lambda job_id, _owner: possible_job(job_id))]
IdInQuery = Annotated[int, Field(ge=1, le=LARGEST)]
AfterId = Annotated[int, Field(ge=0, le=LARGEST)]
Count = Annotated[int, Field(ge=1, le=PAGE)]
FullPage = Annotated[int | None, Sent(where="server")]
Shown = Annotated[int, Field(ge=0, le=MOST_SHOWN)]
Token = Annotated[int, Field(ge=0, le=LARGEST)]
Rank = Annotated[int, Field(ge=0, le=SMALLINT)]
Number = Annotated[int, Field(ge=-1, le=INTEGER)]
AttemptNumber = Annotated[int, Field(ge=1, le=SMALLINT)]
Owner = Annotated[
    Word | None,
    Field(description="the owner; only an admin may name another"),
    Sent(write=_own, where="query"),
]
Query = Annotated[
    Text, Field(description="a filter, as on the page of jobs"), Sent("q", write=_seen)
]
States = Annotated[Sequence[str] | None, Sent("state", kind=list[KnownState] | None, write=_states)]
# Comma-separated.
Columns = Annotated[
    Sequence[str],
    Sent(
        kind=Annotated[Word, Field(examples=["owner,queue"])] | None,
        write=lambda names, _owner: ",".join(names) or None,
        read=lambda text: [name.strip() for name in (text or "").split(",") if name.strip()],
    ),
]
# In bodies, whose numbers are not text.
_JobIds = Annotated[list[Id], Field(max_length=PAGE, examples=[[1, 2]])]
JobIds = Annotated[
    Sequence[int],
    Sent(kind=_JobIds, write=lambda ids, _owner: [possible_job(job_id) for job_id in ids]),
]
SomeJobIds = Annotated[
    Sequence[int], Sent(kind=Annotated[list[IdInQuery], Field(min_length=1, max_length=PAGE)])
]
_Note = Annotated[Text, Field(max_length=LONGEST_NOTE, examples=["baseline for the paper"])]
JobNote = Annotated[
    str | None, Sent(kind=_Note | None, write=lambda note, _owner: checked_note(note))
]
_Tag = Annotated[Text, Field(pattern=f"^{TAG}$", examples=["paper"])]
Tags = Annotated[
    Sequence[str],
    Sent(
        kind=Annotated[list[_Tag], Field(max_length=MOST_TAGS)],
        write=lambda tags, _owner: checked_tags(tags),
    ),
]
AttemptCheckpoint = tuple[
    Annotated[int, Field(ge=1, le=SMALLINT), NUMERIC],
    Annotated[int, Field(ge=0, le=INTEGER), NUMERIC],
]
OwnerInBody = Annotated[Word | None, Sent(write=_own)]
Paused = Annotated[bool, Sent(kind=Flag, required=True)]
