"""The verbs about what jobs found out, through a server."""

from __future__ import annotations

from collections.abc import Sequence

from forge_schema.model.results import (
    MOST_RUNS,
    Run,
    Runs,
    drawn_metric,
    in_order,
    require_columns,
)
from forge_schema.service.findings import Findings

from forge_client.errors import as_client_error
from forge_client.findings import PAGE
from forge_client.http.remote import ServerVerbs
from forge_client.http.transport import Transport


class HttpFindings(Findings):
    """Asks a server.

    Args:
        transport: how to reach it.
        owner: whose sweeps are meant unless another's are; None is the key's owner.
    """

    def __init__(self, transport: Transport, *, owner: str | None) -> None:
        self.remote = ServerVerbs(transport, owner)

    def runs(
        self,
        query: str = "",
        *,
        owner: str | None = None,
        sort: str | None = None,
        descending: bool = False,
        curve: Sequence[str] = (),
        before: int | None = None,
        count: int = PAGE,
    ) -> Runs:
        if count <= PAGE:
            return super().runs(
                query,
                owner=owner,
                sort=sort,
                descending=descending,
                curve=curve,
                before=before,
                count=count,
            )
        # More than one answer holds: all are read, and sorted here.
        most = min(count, MOST_RUNS) if sort is None else MOST_RUNS
        runs = self._all_runs(query, owner, curve, before, most)
        if sort is None:
            return runs
        with as_client_error():
            require_columns(runs.items, [sort])
        items = in_order(runs.items, sort, descending=descending)[:count]
        return runs.model_copy(update={"items": items})

    def _all_runs(
        self, query: str, owner: str | None, curve: Sequence[str], before: int | None, most: int
    ) -> Runs:
        items: list[Run] = []
        more = True
        while more and len(items) < most:
            left = min(PAGE, most - len(items))
            runs = super().runs(query, owner=owner, curve=curve, before=before, count=left)
            items += runs.items
            # The same metric is drawn of all.
            drawn = drawn_metric(items, curve)
            curve = [drawn] if drawn else []
            more = runs.more and bool(runs.items)
            before = items[-1].job_id if items else None
        return Runs(items=items, found=len(items), more=more)
