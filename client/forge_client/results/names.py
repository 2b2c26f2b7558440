"""Sweeps, workers, ranks, attempts, files and times by what people call them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from fnmatch import fnmatchcase
from shlex import quote
from typing import TYPE_CHECKING

from forge_schema.model import quantities
from forge_schema.model.errors import nearest
from forge_schema.model.quantities import counted, names_text

from forge_client.errors import ClientError, InvalidInput

if TYPE_CHECKING:
    from forge_schema.model.admin import Approved, Team, TeamStatus
    from forge_schema.model.job import JobStatus
    from forge_schema.model.stored import Artifact
    from forge_schema.model.worker import WorkerInfo

    from forge_client.backend import Backend

SHOWN = 5
# The queue whose pause new ones begin with.
EVERY_NEW = "*"


def whole_name(backend: Backend, name: str, owner: str | None) -> str:
    """Return the name of the sweep that a name, or the start of one, means.

    Raises:
        ClientError: it could mean several sweeps, or means none.
    """
    if "*" in name or ":" in name or " " in name:
        return name
    whose = owner or backend.me().owner
    found = backend.findings.run_groups(f"sweep:{name}*", by="sweep", owner=whose).items
    if not found:
        every = backend.findings.run_groups("", by="sweep", owner=whose).items
        near = nearest(name, (item.name for item in every if item.name))
        raise ClientError(
            f"{whose} has no sweep {name!r}",
            hint=f"{near}`forge sweep list` lists the sweeps",
            code="sweep_unknown",
        )
    return the_one(name, (item.name for item in found), "forge sweep list")


def unused(name: str, known: Collection[str]) -> str:
    """Return a remark on the name of a queue that no job had yet, else "": it may be mistyped."""
    if name == EVERY_NEW:
        return "queues that are new from now on begin as it is"
    return "" if name in known else f"no job has used {name} yet" + _meant(name, known)


def newcomer(owner: str, known: Collection[str]) -> str:
    """Return a remark on an owner who is not known yet, else ""."""
    return "" if owner in known else f"{owner} has not submitted a job yet" + _meant(owner, known)


def _meant(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f": did you mean {near[0]}?" if near else ""


def joining(name: str, owners: Collection[str], known: Sequence[Team]) -> str:
    """Return a remark on a new team that is like another or takes owners of one, and on these."""
    names = [team.name for team in known]
    near = "" if name in names else _meant(name, names)
    before = {
        team.name: [owner for owner in owners if owner in team.owners]
        for team in known
        if team.name != name
    }
    left = [f"no longer in {own}: {', '.join(who)}" for own, who in before.items() if who]
    is_new = name not in names and (near or left)
    return "; ".join([*([f"the team {name} is new{near}"] if is_new else []), *left])


def require_members(team: TeamStatus, owners: Sequence[str]) -> None:
    """Check that owners are in a team.

    Raises:
        ClientError: some are not.
    """
    members = {member.owner for member in team.members if member.is_member}
    if others := [owner for owner in owners if owner not in members]:
        raise ClientError(
            f"{names_text(others)} {'is' if len(others) == 1 else 'are'} not in {team.name}",
            hint=f"nobody has left; `forge team show {quote(team.name)}` lists its owners",
            code="owner_not_in_team",
        )


def require_queue(name: str, known: Sequence[str]) -> None:
    """Check that there is a queue; `ClientError` if there is none of this name."""
    if name not in known:
        raise ClientError(
            f"there is no queue {name!r}{_meant(name, known)}",
            hint="`forge queue list` lists them",
            code="queue_not_found",
        )


def require_present(pages: Sequence[Approved]) -> None:
    """Check that the jobs which were to be approved exist; `ClientError` if some do not."""
    if absent := sum(page.absent for page in pages):
        raise ClientError(
            f"{approvals_text(pages, 'absent', absent)} "
            f"{'does' if absent == 1 else 'do'} not exist",
            hint="`forge approve` lists those that wait",
            code="job_unknown",
        )


def approvals_text(pages: Sequence[Approved], outcome: str, count: int) -> str:
    """Return the jobs of which an approval became this, in words."""
    became = (item for page in pages for item in page.became.items())
    if jobs := [str(job) for job, its in became if its == outcome]:
        return f"job{'s' * (count > 1)} {names_text(jobs)}"
    return counted(count, "job")


def the_one(start: str, sweeps: Iterable[str | None], listed_by: str) -> str:
    """Return the one of some sweeps that a name, or the start of one, means; if none, the name.

    Raises:
        ClientError: it could mean several sweeps.
    """
    matching = list(dict.fromkeys(name for name in sweeps if name and name.startswith(start)))
    if start in matching or not matching:
        return start
    if len(matching) > 1:
        raise ClientError(
            f"{start!r} could be the sweep {names_text(matching, SHOWN, last='or')}",
            hint=f"write more of its name; `{listed_by}` lists them",
            code="job_ambiguous",
        )
    return matching[0]


def find_worker(backend: Backend, worker: str) -> WorkerInfo:
    """Return a worker by its name or id; `ClientError` if there is no such worker."""
    rows = backend.workers()
    for known in ({row.name: row for row in rows}, {str(row.id): row for row in rows}):
        if worker in known:
            return known[worker]
    raise ClientError(
        f"there is no worker {worker!r}",
        hint=f"{nearest(worker, (row.name for row in rows))}`forge worker list` lists them",
        code="worker_not_found",
    )


def require_rank(job: JobStatus, rank: int | None) -> None:
    """Check that a job has a rank; `ClientError` if it has too few."""
    if rank is None or rank < job.nodes:
        return
    several = f"its ranks are 0 to {job.nodes - 1}, one for each machine"
    raise ClientError(
        f"job {job.job_id} has no rank {rank}",
        hint=several if job.nodes > 1 else "it runs on one machine, which is rank 0",
        code="rank_unknown",
    )


def require_attempt(job: JobStatus, attempt: int | None) -> None:
    """Check that a job has had an attempt; `ClientError` if it has had fewer."""
    if attempt is None or 0 < attempt <= job.attempt:
        return
    raise ClientError(
        f"job {job.job_id} has had no attempt {attempt}",
        hint=f"`forge show {job.job_id}` lists its attempts",
        code="attempt_unknown",
    )


def chosen_files(job: int, files: Sequence[Artifact], only: Sequence[str]) -> list[Artifact]:
    """Return the files of a job that have these paths, are below them, or match them as patterns.

    Raises:
        ClientError: one of them chooses none.
    """
    paths = [file.path for file in files]
    chosen = {path for pattern in only for path in _matching(job, paths, pattern)}
    return [file for file in files if file.path in chosen]


def _matching(job: int, paths: Sequence[str], pattern: str) -> list[str]:
    bare = pattern.removeprefix("./").rstrip("/")
    names = {path: path if "/" in bare else path.rpartition("/")[2] for path in paths}
    found = [
        path
        for path in paths
        if path == bare or path.startswith(f"{bare}/") or fnmatchcase(names[path], bare)
    ]
    if not found:
        near = get_close_matches(bare, paths, SHOWN) or paths
        raise ClientError(
            f"job {job} has no artifact {pattern!r}",
            hint=f"it has {names_text(near, SHOWN)}",
            code="artifact_unknown",
        )
    return found


def require_metrics(job: int, names: Sequence[str], known: Sequence[str]) -> None:
    """Check that a job has written metrics of these names.

    Raises:
        ClientError: it has not written one of them.
    """
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, SHOWN) or known
            raise ClientError(
                f"job {job} has written no metric {name!r}",
                hint=f"it has written {names_text(near, SHOWN)}" if known else "",
                code="metric_unknown",
            )


def moment(name: str, text: str, backend: Backend) -> datetime:
    """Return the time that an age, a day or a time names, by default in this machine's time zone.

    An age is subtracted from the queue's clock, since this machine's may be wrong.

    Raises:
        ClientError: it is none of them.
    """
    require_moment(name, text)
    return quantities.moment(text, backend.overview().at, None)


def require_moment(name: str, text: str) -> None:
    """Check that a text names a time, before Forge is asked; `ClientError` if it does not."""
    try:
        quantities.moment(text, datetime.now(UTC))
    except ValueError as error:
        raise InvalidInput(f"{name}: {error}", quantities.MOMENTS_HINT) from None


def age(name: str, given: timedelta | str, backend: Backend) -> timedelta:
    """Return how long ago something was, of a duration or of what `moment` takes.

    Raises:
        ClientError: it is none of them, or has not come yet.
    """
    if isinstance(given, timedelta):
        return given
    require_moment(name, given)
    try:
        back = timedelta(seconds=quantities.span(given))
    except ValueError:
        now = backend.overview().at
        back = now - quantities.moment(given, now, None)
    if back < timedelta(seconds=1):
        raise InvalidInput(f"{name}: {given!r} has not come yet", quantities.MOMENTS_HINT)
    return back
