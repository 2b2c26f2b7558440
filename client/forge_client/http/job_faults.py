"""A server's refusal of a job, in the words for a job that was never sent."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from forge_client.errors import ClientError

# Where a field stands in the request, which whoever wrote the job did not.
PLACE = re.compile(r"body\.(jobs\.\d+|spec)\.")


@contextmanager
def plainly() -> Iterator[None]:
    """Name the fields of a refused job as the job does."""
    try:
        yield
    except ClientError as error:
        if error.code != "invalid":
            raise
        message = PLACE.sub("", error.message).replace("Value error, ", "")
        raise ClientError(
            message,
            hint="`forge submit --help` lists the options",
            code="spec_invalid",
        ) from error
