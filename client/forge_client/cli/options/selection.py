"""Jobs that a query selects, shown and confirmed before anything is done to them."""

import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Annotated

import typer
from forge_schema.job_filter import KEYS, ME, Filter, parse
from forge_schema.model.admin import AwaitingApproval
from forge_schema.model.job import JobStatus
from forge_schema.model.quantities import counted
from forge_schema.model.states import StateWord

from forge_client.backend import Backend
from forge_client.cli.options import names
from forge_client.cli.options.names import HELP
from forge_client.cli.quick.completion import terms
from forge_client.cli.show import narration
from forge_client.cli.show.acting import require_all
from forge_client.cli.show.standing import search
from forge_client.errors import ClientError, InvalidInput

# The most that the server takes in one call, and the most that one command acts on.
BATCH, MOST = 1_000, 10_000
SHOWN = 5
# Terms of names that people shorten, and how many jobs are counted that the start of one matches.
NAMED, COUNTED = ("name", "sweep", "experiment"), 1_000
NEAR = ("owner", "team", "queue", "worker", "sweep", "experiment")
# An id, or one of the newest; anything else is a name or the start of one.
EXACT = re.compile(r"\s*(\d+|@\w+)\s*", re.ASCII)

Selection = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="JOB...|QUERY",
        help=f"{HELP} Or a query, e.g. state:running name:a*",
        autocompletion=names.jobs,
    ),
]
Query = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="QUERY",
        help="E.g. state:failed owner:me since:1d name:resnet*",
        autocompletion=terms,
    ),
]
YesOption = Annotated[
    bool,
    typer.Option(
        "--yes", "-y", help="Do not ask before acting on a query, or on the start of a name."
    ),
]
# Of what removes something for good.
SureOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before removing it.")]


def is_query(words: Sequence[str]) -> bool:
    """Tell whether the words are a query: it has a term such as `state:failed`."""
    return any(":" in word for word in words)


def selected(
    backend: Backend, words: Sequence[str], states: Sequence[StateWord]
) -> list[JobStatus]:
    """Return the jobs in some states that match a query.

    Raises:
        ClientError: the words are not a query, or match too many jobs.
    """
    jobs: list[JobStatus] = []
    before: int | None = None
    while len(jobs) <= MOST:
        page = backend.jobs(" ".join(words), states=states, before=before, count=BATCH)
        jobs += page
        if len(page) < BATCH:
            return jobs
        before = page[-1].job_id
    raise InvalidInput(f"more than {counted(MOST, 'job')} match", hint="add a term, e.g. since:1d")


def wider(
    backend: Backend,
    words: Sequence[str],
    *,
    owner: str | None = None,
    states: Sequence[str] | None = None,
    before: int | None = None,
) -> str:
    """Return a hint for a query that no job matches, if names that begin as it says would.

    A word that is a state is one, if no job has it in its name; a number may be a part of a name.
    """
    query = parse(" ".join(words))
    if state := next((word for word in query.words if word in set(StateWord)), None):
        return f"; for the state, write state:{state}"
    if term := next((word for word in query.words if "=" in word), None):
        known = term.partition("=")[0] in KEYS
        return f"; write {term.replace('=', ':', 1) if known else f'param:{term}'}"
    if near := _near(backend, query):
        return near
    begun = query
    if not query.values("name"):
        begun = query.having("id").having("name", *(f"*{number}*" for number in query.values("id")))
    for key in NAMED:
        names = (name if name.endswith("*") else f"{name}*" for name in begun.values(key))
        begun = begun.having(key, *names)
    if begun == query:
        return ""
    chosen = {"owner": owner, "states": states, "before": before}
    jobs, _ = search(backend, str(begun), **chosen, count=COUNTED)
    more = " or more" if len(jobs) == COUNTED else ""
    return f"; '{begun}' would match {counted(len(jobs), 'job')}{more}" if jobs else ""


def _near(backend: Backend, query: Filter) -> str:
    """Return what is there and like a name of the query, of the newest jobs."""
    named = [(key, query.values(key)) for key in NEAR]
    named += [(key, values) for key, values in query.repeated if key == "tag"]
    figures = [(key, values) for key, values in query.repeated if key == "metric"]
    named += [
        (key, tuple(re.split("[=<>]", text)[0] for text in values)) for key, values in figures
    ]
    asked = [(key, name) for key, names in named for name in names if "*" not in name]
    jobs = backend.jobs(count=COUNTED) if asked else []
    there = {key: {getattr(job, key) or "" for job in jobs} for key in NEAR if key != "team"}
    there["tag"] = {tag for job in jobs for tag in job.tags}
    there["team"] = {team.name for team in backend.teams()} if query.values("team") else set()
    there["metric"] = {name for job in jobs for name in job.metrics}
    for key, name in asked:
        close = get_close_matches(name, there[key], n=1)
        begins = key in NAMED and close and close[0].startswith(name)
        if close and not begins and close[0] != name and name != ME:
            return f"; did you mean {key}:{close[0]}?"
    return ""


def meant(
    backend: Backend, handles: Sequence[str], act: str, states: Sequence[StateWord], *, yes: bool
) -> list[int]:
    """Return the ids of jobs; those named only by the start of a name are confirmed first.

    Nobody is asked about a job that is in none of the states: it is refused anyway.

    Raises:
        ClientError: there is no such job, or nobody to ask.
    """
    ids = [_meant(backend, handle, act) for handle in handles]
    doubtful = {
        job: each for each, job in zip(handles, ids, strict=True) if not EXACT.fullmatch(each)
    }
    # The act itself tells of a single one that is not there.
    if doubtful or len(ids) > 1:
        jobs = backend.statuses(list(dict.fromkeys(ids)))
        require_all(ids, jobs)
        meant_by = ((jobs[job], handle.strip()) for job, handle in doubtful.items())
        guessed = [job for job, name in meant_by if job.state in states and job.name != name]
        if guessed:
            confirm(guessed, act, yes=yes)
    return ids


def _meant(backend: Backend, handle: str, act: str) -> int:
    try:
        return backend.job_id(handle)
    except ClientError as error:
        if error.code == "job_ambiguous":
            sweep = " or, if they are a sweep's, with --sweep" if act == "cancel" else ""
            error.hint = f"write an id, or {act} all of them with 'name:{handle.strip()}*'{sweep}"
        raise


def confirm(jobs: Sequence[JobStatus] | Sequence[AwaitingApproval], act: str, *, yes: bool) -> None:
    """Show how many jobs there are, and the first of them; unless `yes`, ask.

    Raises:
        ClientError: there is nobody to ask.
    """
    many = counted(len(jobs), "job")
    narration.say(f"{many} to {act}:")
    for job in jobs[:SHOWN]:
        narration.say(f"  {job.job_id} {job.name!r}, {job.state}, of {job.owner}")
    if len(jobs) > SHOWN:
        narration.say(f"  and {len(jobs) - SHOWN} more")
    ask(f"{act.capitalize()} {many}?", yes=yes)


def ask(question: str, *, yes: bool, lost: str = "") -> None:
    """Say what would be lost, and unless `yes`, ask whether to go ahead.

    Raises:
        ClientError: there is nobody to ask.
    """
    if lost:
        narration.say(lost)
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(
            "nobody was there to confirm it; nothing was changed",
            hint="add --yes to go ahead without being asked",
        )
    if not typer.confirm(question, err=True):
        narration.say("nothing was changed")
        raise typer.Exit(1)


def in_batches(
    act: Callable[[Sequence[int]], dict[str, int]], jobs: Sequence[JobStatus]
) -> Counter[str]:
    """Act on jobs, as many in one call as it takes, and add up the outcomes."""
    counts: Counter[str] = Counter()
    ids = [job.job_id for job in jobs]
    for at in range(0, len(ids), BATCH):
        counts.update(act(ids[at : at + BATCH]))
    return counts
