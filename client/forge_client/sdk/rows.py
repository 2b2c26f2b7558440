"""Lists of records that become a data frame."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from forge_schema.model.job import JobStatus
from forge_schema.model.results import Run, flat
from forge_schema.tables import names_of
from pydantic import BaseModel

from forge_client.columns import numeric
from forge_client.connection import require_extra
from forge_client.sdk.notebook import jobs_html, rows_html

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")


class Rows(list[T]):
    """A list; `to_frame` makes a pandas data frame of it, and a notebook shows it as a table."""

    def _repr_html_(self) -> str:
        if self and all(isinstance(row, JobStatus) for row in self):
            return jobs_html([row for row in self if isinstance(row, JobStatus)])
        return rows_html([flat(_plain(row)) for row in self])

    def to_frame(self) -> "pd.DataFrame":
        """Return a data frame with a column for each field.

        A field that holds an object, such as a sweep's `parameters`, becomes a column for each of
        its keys: `parameters.lr`. NaN and infinities, which JSON has as text, become numbers, and
        integers of more than 64 bits floats. Runs have a `curve` only if one was asked for.

        Raises:
            ClientError: pandas is not installed.
        """
        require_extra("pandas", "frames", "make data frames")
        import pandas as pd  # noqa: PLC0415 - only with the extra

        rows = [flat(_plain(row)) for row in self]
        frame = pd.DataFrame(rows, columns=names_of(rows))
        for name in frame.select_dtypes(exclude=["number", "datetimetz"]):
            frame[name] = numeric([*frame[name]])
        return frame


class FoundRows(Rows[T]):
    """Some of the rows that were `found`; if there are `more`, older ones match too."""

    def __init__(self, rows: Iterable[T], *, found: int, more: bool) -> None:
        super().__init__(rows)
        self.found = found
        self.more = more


def _plain(row: Any) -> dict[str, Any]:  # noqa: ANN401 - a record, or a row of a report
    match row:
        case Run(curve=None):
            return row.model_dump(exclude={"curve"})
        case BaseModel():
            return row.model_dump()
        case Mapping():
            return dict(row)
        case _:
            return dict(vars(row))
