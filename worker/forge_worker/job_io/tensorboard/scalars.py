"""The scalars in an event, a protocol buffer of TensorFlow's `Event`."""

from collections.abc import Iterator
from struct import error as WrongSize  # noqa: N812 - it names no struct otherwise
from struct import unpack

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
# Numbers of the fields that are read.
EVENT_STEP, EVENT_SUMMARY, SUMMARY_VALUE = 2, 5, 1
VALUE_TAG, VALUE_SIMPLE, VALUE_TENSOR = 1, 2, 8
TENSOR_TYPE, TENSOR_SHAPE, TENSOR_CONTENT, TENSOR_FLOATS, TENSOR_DOUBLES = 1, 2, 4, 5, 6
FLOAT, DOUBLE = 1, 2
TAG_BYTES = 500

Field = tuple[int, int | bytes]
Scalar = tuple[str, float]


def scalars(event: bytes) -> tuple[int, list[Scalar]]:
    """Return the step of an event and its scalars; what is no event has none."""
    try:
        fields = list(_fields(event))
        step = next((n for name, n in fields if name == EVENT_STEP and isinstance(n, int)), 0)
        # A negative step is written as the number that is 2**64 larger.
        step -= 1 << 64 if step >= 1 << 63 else 0
        values = [
            value
            for summary in _inner(fields, EVENT_SUMMARY)
            for value in _inner(list(_fields(summary)), SUMMARY_VALUE)
        ]
        return step, [found for value in values if (found := _scalar(value)) is not None]
    except (ValueError, IndexError, WrongSize):
        return 0, []


def _scalar(value: bytes) -> Scalar | None:
    fields = list(_fields(value))
    tag = next(_inner(fields, VALUE_TAG), b"")
    if not tag or len(tag) > TAG_BYTES:
        return None
    simple = next(_inner(fields, VALUE_SIMPLE), None)
    tensor = next(_inner(fields, VALUE_TENSOR), None)
    if simple is not None:
        return tag.decode(), float(unpack("<f", simple)[0])
    number = None if tensor is None else _number(list(_fields(tensor)))
    return None if number is None else (tag.decode(), number)


def _number(tensor: list[Field]) -> float | None:
    """Return the number in a tensor without dimensions, as TensorFlow 2 writes scalars."""
    kind = next((n for name, n in tensor if name == TENSOR_TYPE), 0)
    if kind not in (FLOAT, DOUBLE) or any(_inner(tensor, TENSOR_SHAPE)):
        return None
    listed = TENSOR_FLOATS if kind == FLOAT else TENSOR_DOUBLES
    found = next(_inner(tensor, TENSOR_CONTENT), next(_inner(tensor, listed), b""))
    return float(unpack("<f" if kind == FLOAT else "<d", found)[0]) if found else None


def _inner(fields: list[Field], number: int) -> Iterator[bytes]:
    return (value for name, value in fields if name == number and isinstance(value, bytes))


def _fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of a message, by number.

    Raises:
        ValueError: it is not a message.
        IndexError: it is cut off.
    """
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        if key & 7 == VARINT:
            value, place = _varint(data, place)
            yield key >> 3, value
            continue
        if key & 7 == BYTES:
            length, place = _varint(data, place)
        else:
            length = {FIXED64: 8, FIXED32: 4}.get(key & 7, -1)
        if not 0 <= length <= len(data) - place:
            raise ValueError("the field is longer than its message")
        yield key >> 3, data[place : place + length]
        place += length


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, place
    raise ValueError("the number has no end")
