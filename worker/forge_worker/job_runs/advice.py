"""What people read of an error in a job's log and in its attempt."""

from forge_schema.model.errors import ForgeError
from forge_schema.queue.queue import DETAIL_LENGTH


def with_advice(error: ForgeError | OSError) -> str:
    """Return what happened and what to do about it: a long message leaves room for the hint."""
    if not isinstance(error, ForgeError):
        return str(error)
    advice = f" ({error.hint})" if error.hint else ""
    return error.message[: DETAIL_LENGTH - len(advice)] + advice
