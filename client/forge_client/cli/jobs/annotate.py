"""`forge tag`, `note`, `archive` and `delete`: what people keep about jobs, and keep of them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from forge_schema.job_filter import parse
from forge_schema.model.job import Acted, JobStatus, JobUnknown
from forge_schema.model.quantities import counted, names_text
from forge_schema.model.states import StateWord

from forge_client.backend import Backend
from forge_client.cli.options import names
from forge_client.cli.options.command_line import VerbNames
from forge_client.cli.options.names import HELP
from forge_client.cli.options.selection import (
    BATCH,
    Selection,
    YesOption,
    confirm,
    is_query,
    meant,
    selected,
    wider,
)
from forge_client.cli.options.session import backend_of
from forge_client.cli.show import narration
from forge_client.cli.show.acting import require_all
from forge_client.errors import ClientError, InvalidInput
from forge_client.results.endings import DONE, check_acted

ENDED = [word for word in StateWord if word.terminal]
Act = Callable[[Sequence[int]], Acted]
app = typer.Typer(cls=VerbNames, no_args_is_help=True, help="Tags of jobs.")


@app.callback()
def tags_of_jobs() -> None:
    """Tag jobs, to find them again: `forge ps tag:paper`."""


TagNames = Annotated[
    str, typer.Argument(metavar="TAG", help="A tag, or several, as in paper,figure-2.")
]


@app.command()
def add(
    context: typer.Context, tag: TagNames, jobs: Selection = None, yes: YesOption = False
) -> None:
    """Add tags to jobs."""
    tags = _tags(tag)
    _annotate(context, jobs, "tag", f"tagged {_shown(tags)}", yes=yes, add=tags)


@app.command()
def remove(
    context: typer.Context, tag: TagNames, jobs: Selection = None, yes: YesOption = False
) -> None:
    """Remove tags from jobs."""
    tags = _tags(tag)
    _annotate(context, jobs, "untag", f"no longer tagged {_shown(tags)}", yes=yes, remove=tags)


def _require_tags(backend: Backend, ids: Sequence[int], tags: Sequence[str]) -> None:
    """Check that jobs have one of some tags at least."""
    for job in backend.statuses(list(ids)).values():
        if not {*tags} & {*job.tags}:
            raise ClientError(
                f"job {job.job_id} has no tag {names_text(tags, len(tags), last='or')}",
                hint=f"its tags: {_shown(job.tags)}" if job.tags else "it has no tags",
                code="job_left_alone",
            )


def note(
    context: typer.Context,
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB|QUERY",
            help=f"{HELP} Or a query, as one word: 'state:failed sweep:s1'",
            autocompletion=names.jobs,
        ),
    ],
    text: Annotated[
        str | None, typer.Argument(help="What to note; '' removes the note.", show_default=False)
    ] = None,
    yes: YesOption = False,
) -> None:
    """Write a note about a job, in place of the one before; without TEXT, print it."""
    if text is None:
        with backend_of(context) as backend:
            for one in _selected(backend, [job], "print"):
                print(one.note or "")  # noqa: T201 - the data
        return
    _annotate(context, [job], "note", "noted" if text else "without a note", yes=yes, note=text)


def archive(
    context: typer.Context,
    jobs: Selection = None,
    undo: Annotated[bool, typer.Option("--undo", help="Bring archived jobs back.")] = False,
    yes: YesOption = False,
) -> None:
    """Have lists leave out jobs that have ended. `forge ps archived:yes` lists them."""
    words = [*(jobs or ())]
    if undo and is_query(words) and not parse(" ".join(words)).values("archived"):
        words.append("archived:yes")
    done = "brought back" if undo else "archived"
    _annotate(context, words, "bring back" if undo else "archive", done, yes=yes, archived=not undo)


def delete(context: typer.Context, jobs: Selection = None, yes: YesOption = False) -> None:
    """Delete jobs that have ended, with their logs, metrics, checkpoints and artifacts.

    There is no way back. What they cost stays in the reports.
    """
    with backend_of(context) as backend:
        doomed = _selected(backend, jobs, "delete")
        if doomed:
            narration.say("their logs, metrics, checkpoints and artifacts are deleted with them")
            confirm(doomed, "delete", yes=yes)
            _act(backend.delete, [job.job_id for job in doomed], "deleted")


def _annotate(
    context: typer.Context,
    words: Sequence[str] | None,
    act: str,
    done: str,
    *,
    yes: bool,
    **given: Any,  # noqa: ANN401 - what `annotate` takes
) -> None:
    with backend_of(context) as backend:
        if is_query(words or ()):
            matching = _selected(backend, words, act)
            if matching:
                confirm(matching, act, yes=yes)
            ids = [job.job_id for job in matching]
        else:
            with _tag_before_jobs(act):
                ids = meant(backend, _named(words, act), act, [*StateWord], yes=yes)
            if "remove" in given:
                _require_tags(backend, ids, given["remove"])
        _act(lambda some: backend.annotate(some, **given), ids, done)


@contextmanager
def _tag_before_jobs(act: str) -> Iterator[None]:
    """Say in which order the words come, where a tag may stand for a job."""
    try:
        yield
    except ClientError as error:
        if act in {"tag", "untag"} and error.code == JobUnknown.code:
            error.hint = f"the tag comes first, then the jobs; {error.hint}"
        raise


def _selected(backend: Backend, words: Sequence[str] | None, act: str) -> list[JobStatus]:
    """Return the jobs that are named or match a query; of a query, only those that fit the act."""
    named = _named(words, act)
    if not is_query(named):
        ids = [backend.job_id(handle) for handle in named]
        jobs = backend.statuses(list(dict.fromkeys(ids)))
        require_all(ids, jobs)
        return [*jobs.values()]
    states = ENDED if act in {"archive", "delete"} else [*StateWord]
    matching = selected(backend, named, states)
    if not matching:
        narration.say(f"no job matches{wider(backend, named, states=states)}; nothing to {act}")
    return matching


def _named(words: Sequence[str] | None, act: str) -> Sequence[str]:
    if not words:
        raise InvalidInput(
            f"there is nothing to {act}", hint="name jobs, or describe them: state:failed sweep:s1"
        )
    return words


def _act(act: Act, ids: Sequence[int], done: str) -> None:
    """Act on jobs, as many in one call as it takes; say what was done, then what was not."""
    became: dict[int, str] = {}
    needed_by: dict[int, int] = {}
    for at in range(0, len(ids), BATCH):
        acted = act(ids[at : at + BATCH])
        became |= acted.became
        needed_by |= acted.needed_by
    good = [job_id for job_id, word in became.items() if word in DONE]
    if good:
        which = f"job {good[0]}" if len(good) == 1 else counted(len(good), "job")
        narration.say(f"{which} {done}")
    check_acted(Acted(became=became, needed_by=needed_by))


def _tags(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",")))


def _shown(tags: Sequence[str]) -> str:
    return names_text(tags, len(tags))
