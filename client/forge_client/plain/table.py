"""The verbs and the records of their answers, as `verbs.json` has them from their declarations."""

import json
from collections.abc import Mapping
from functools import cache
from os.path import dirname, join
from typing import Any, TypeAlias

Declared: TypeAlias = Mapping[str, Any]
"""A verb, a parameter or a field; only what is so is there.

A verb has a `method`, a `path` and `parameters`. Its answer `takes` a field of what the server
says, and makes it, or each in it, into a `kind`, which may be `of_a_job`; or it is `nothing`. A
parameter has a `name`, and `where` it stands in a request, as a `field` of another name, `inside`
another one; `own` is the client's owner by default. A record has `fields`, each of a `kind`, maybe
`hidden` from people, and the `reading` of what they say.
"""


@cache
def table() -> Mapping[str, Mapping[str, Declared]]:
    """Return the `verbs` and the `records`, by their names."""
    with open(join(dirname(__file__), "verbs.json"), encoding="utf-8") as file:
        rows: dict[str, dict[str, Declared]] = json.load(file)
    return rows
