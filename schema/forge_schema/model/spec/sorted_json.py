"""JSON with sorted keys, of which digests are made."""

import json
from json.encoder import (  # type: ignore[attr-defined]  # the stubs lack the encoder in C
    c_make_encoder,
    encode_basestring_ascii,
)

ENCODER = json.JSONEncoder(sort_keys=True)
# `ENCODER.encode` makes one of these for each value, which takes longer than what it encodes.
_SETTINGS = {"sort_keys": True, "skipkeys": False, "allow_nan": True}
_encode = c_make_encoder(
    None, ENCODER.default, encode_basestring_ascii, None, ": ", ", ", *_SETTINGS.values()
)


def sorted_json(value: object) -> str:
    """Return a value as JSON with sorted keys, as `json.dumps` does."""
    return "".join(_encode(value, 0))
