"""The commands that are answered quickly, as they are often typed."""

from __future__ import annotations

import os
import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from forge_schema.model.states import StateWord

from forge_client.cli.quick.arguments import Declined, commands, whole_number
from forge_client.plain.backend import PlainBackend
from forge_client.plain.place import server_place
from forge_client.plain.wire import NotPlain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from forge_client.backend import Backend
    from forge_client.cli.show.output import Format
    from forge_client.project import Keys
    from forge_client.project.forge_toml import Project
    from forge_client.project.request import Request

Given = dict[str, Any]
NUMBERS: dict[str, Callable[[str], float]] = {"int": int, "float": float}
NEWEST = "@last"
JOBS = 25
MOST_JOBS = 1000
# An id, or one of the newest: nobody has to confirm which job is meant.
EXACT = re.compile(r"\s*(\d+|@\w+)\s*", re.ASCII)
# Options of `forge submit` itself, and those whose values are checked while typer reads them.
NOT_PLAIN = {"config", "dry_run", "from_checkpoint"}
NOT_PLAIN |= {"after", "after_ok", "after_any"}


def backend() -> Any:  # noqa: ANN401 - a `Backend`, as far as the verbs go that are called
    """Return a backend that asks the server that is plainly to be asked.

    Raises:
        Declined: it takes more to find it.
    """
    try:
        return PlainBackend(server_place(), _whole)
    except (NotPlain, OSError) as error:
        raise Declined from error


def _whole() -> Backend:
    from forge_client import settings  # noqa: PLC0415 - what this does without
    from forge_client.connection import connect  # noqa: PLC0415 - as above

    return connect(settings.load({}, {}))


def ps(given: Given) -> None:
    """Answer `forge ps`."""
    from forge_client.cli.show import narration, output, standing  # noqa: PLC0415 - only for this

    form = form_of(given)
    _only(given, "query", "mine", "owner", "state", "count", "before")
    states, count = given.get("state"), whole_number(given.get("count"), 1, MOST_JOBS)
    before = whole_number(given.get("before"), 1)
    if not {*StateWord}.issuperset(states or ()):
        raise Declined
    with backend() as asked:
        owner = asked.owner or asked.me().owner if "mine" in given else given.get("owner")
        text = " ".join(given.get("query", ()))
        rows, more = standing.search(
            asked, text, owner=owner, states=states, before=before, count=count or JOBS
        )
        if rows or form is not output.Format.TABLE:
            output.show(rows, standing.columns(rows), form, standing.DROP)
        elif text and all(map(_as_wide_as_can_be, text.split())):
            narration.say("no job matches")
        elif text or states or owner or before:
            # It looks for what may have been meant.
            raise Declined
        else:
            narration.say(standing.NO_JOBS)
        if more:
            narration.say(more)


def show(given: Given) -> None:
    """Answer `forge show`."""
    from forge_client.cli.show import output  # noqa: PLC0415 - only for this
    from forge_client.cli.show.job_details import details  # noqa: PLC0415 - as above
    from forge_client.findings import everything  # noqa: PLC0415 - as above

    form = form_of(given)
    _only(given, "job")
    with backend() as asked:
        document = everything(asked, asked.job_id(given.get("job", NEWEST)))
    output.show_one(document, form, lambda: details(**document))


def logs(given: Given) -> None:
    """Answer `forge logs`."""
    from forge_client.cli.show.log_lines import Shaping, pattern  # noqa: PLC0415 - only for this
    from forge_client.cli.show.output import coloured  # noqa: PLC0415 - as above
    from forge_client.cli.show.waiting import begun, followed, stored_log  # noqa: PLC0415
    from forge_client.results.log_reader import LogPart  # noqa: PLC0415 - as above

    _only(given, "job", "follow", "attempt", "rank", "tail", "grep", "timestamps")
    attempt, tail = whole_number(given.get("attempt"), 1), whole_number(given.get("tail"), 0)
    rank = None if given.get("rank") == "all" else whole_number(given.get("rank"), 0)
    wanted = pattern(given["grep"]) if "grep" in given else None
    part = LogPart(attempt, rank, None, tail)
    shaping = Shaping(wanted, times="timestamps" in given, colour=coloured())
    with backend() as asked:
        job = asked.job_id(given.get("job", NEWEST))
        follow = "follow" in given
        known, teller = begun(asked, job, part, shaping, named="job" in given, follow=follow)
        if follow:
            sys.exit(followed(asked, job, part, teller))
        stored_log(asked, known, part, teller)


def report(given: Given) -> None:
    """Answer `forge report show`."""
    from forge_client.cli.show.report_rows import ReportFormat, ReportPart, show_report  # noqa: PLC0415 - only for this

    form = given.pop("form", None) or os.environ.get("FORGE_OUTPUT") or ReportFormat.TABLE
    _only(given, "name", "since", "until", "by", "count")
    if "name" not in given or form not in {*ReportFormat} - {ReportFormat.PARQUET}:
        raise Declined
    most = whole_number(given.get("count"), 1)
    part = ReportPart(given.get("since"), given.get("until"), given.get("by"), most)
    with backend() as asked:
        show_report(asked, given["name"], part, ReportFormat(form))


def cancel(given: Given) -> None:
    """Answer `forge cancel`."""
    from forge_client.cli.show.acting import cancel_one, each_of, require_all  # noqa: PLC0415 - only for this

    _only(given, "jobs", "yes")
    jobs = given.get("jobs", ())
    if not jobs or not all(map(EXACT.fullmatch, jobs)):
        raise Declined
    with backend() as asked:
        ids = [asked.job_id(job.strip()) for job in jobs]
        # The act itself tells of a single one that is not there.
        if len(ids) > 1:
            require_all(ids, asked.statuses(ids))
        each_of(ids, partial(cancel_one, asked))


def submit(given: Given, command: Sequence[str] | None) -> None:
    """Answer `forge submit`: nothing has to be looked up, followed or shown but the job's id."""
    from pathlib import Path  # noqa: PLC0415 - only for this

    from forge_client.cli.show.submitted import ready, submit_one  # noqa: PLC0415 - as above

    folder, form, wait = Path(given.pop("folder", ".")), form_of(given), given.pop("wait", False)
    with backend() as asked:
        project, request = _described(given, folder, command)
        whole = ready(asked.owner, project, [request], folder)
        submit_one(asked, whole, form, wait=wait)


def _described(
    given: Given, folder: Path, command: Sequence[str] | None
) -> tuple[Project, Request]:
    """Return the job that is described, before anything is said of it."""
    from forge_client.errors import ClientError  # noqa: PLC0415 - as above

    if NOT_PLAIN & given.keys():
        raise Declined
    for one in commands()["commands"]["submit"]["parameters"]:
        if one["name"] in commands()["keys"] and (text := os.environ.get(one.get("variable", ""))):
            given.setdefault(one["name"], text)
    if plain := plainly_described(given, folder, command):
        return plain, plain
    try:
        project, request = described_by_models(given, folder, command)
    except (ClientError, ValueError) as error:
        raise Declined from error
    if project.connection.model_dump(exclude_none=True) or project.matrix:
        raise Declined
    return project, request


def plainly_described(given: Given, folder: Path, command: Sequence[str] | None) -> Any:  # noqa: ANN401 - a `PlainRequest` stands for two others
    """Return the job that is described, if only the queue need check it, without the models."""
    from forge_client.errors import ClientError  # noqa: PLC0415 - as above
    from forge_client.project import FILE, PlainRequest, merged, values_of  # noqa: PLC0415

    keys, path, below = commands()["keys"], folder / FILE, {}
    if os.path.lexists(path) and not path.is_file():
        return None
    try:
        if path.is_file():
            import tomllib  # noqa: PLC0415 - as above

            below = values_of(keys, tomllib.loads(path.read_text(encoding="utf-8")))
        values = merged(below, _options(keys, given, folder, command))
    except (ClientError, OSError, OverflowError, ValueError):
        return None
    # Its path is seen from the folder.
    if not values.get("command") or "image_tar" in below:
        return None
    fields: Given = {}
    others = {name: value for name, value in values.items() if "field" not in keys[name]}
    for name in values.keys() - others.keys():
        place = fields.setdefault(keys[name]["table"], {}) if "table" in keys[name] else fields
        place[keys[name]["field"]] = values[name]
    return PlainRequest(fields, others, lambda: described_by_models(given, folder, command)[1])


def _options(keys: Keys, given: Given, folder: Path, command: Sequence[str] | None) -> Given:
    """Return the values of options; `ValueError` if one is not plainly of a job."""
    from forge_client.project import plain_value  # noqa: PLC0415 - as above
    from forge_client.project.written import PARSERS, command_line  # noqa: PLC0415 - as above

    texts = {**given, **({"command": command_line(command, folder)} if command else {})}
    nothing = {"requirements": False} if texts.pop("no_install", False) else {}
    if not texts.keys() <= keys.keys():
        raise ValueError
    read = {name: _typed(keys[name], name, text) for name, text in texts.items()}
    parsed = {
        name: PARSERS[name](value) if name in PARSERS else value for name, value in read.items()
    }
    return {name: plain_value(name, one, **keys[name]) for name, one in parsed.items()} | nothing


def _typed(key: Mapping[str, Any], name: str, text: Any) -> Any:  # noqa: ANN401 - as the option
    # A time or a size is read from its text.
    return NUMBERS.get(key["kind"], lambda text: text)(text) if key.get("field") == name else text


def described_by_models(
    given: Given, folder: Path, command: Sequence[str] | None
) -> tuple[Project, Request]:
    """Return the job that is described.

    Raises:
        ClientError: it is wrong.
    """
    from forge_client.cli.options.job_fields import changes, kind_of, project_in  # noqa: PLC0415 - as above
    from forge_client.project.written import command_line  # noqa: PLC0415 - as above

    def value(name: str, text: Any) -> Any:  # noqa: ANN401 - as the option
        kind = kind_of(name)
        return kind(text) if kind in {int, float} else text

    fields = changes({name: value(name, text) for name, text in given.items()})
    project = project_in(folder, limit=given.get("limit"), include=given.get("include"))
    command_words = command_line(command, folder)
    return project, project.request().changed({**fields, "command": command_words})


def _as_wide_as_can_be(word: str) -> bool:
    """Tell whether a term of a query cannot have been meant for another."""
    doubtful = ":" in word or "=" in word or word.isdecimal() or word in {*StateWord}
    return word.endswith("*") or not doubtful


def form_of(given: Given) -> Format:
    """Take out how to print the data; `Declined` if there is no such form."""
    from forge_client.cli.show.output import Format  # noqa: PLC0415 - not for all of them

    try:
        return Format(given.pop("form", None) or os.environ.get("FORGE_OUTPUT") or Format.TABLE)
    except ValueError as error:
        raise Declined from error


def _only(given: Given, *names: str) -> None:
    """Decline other options than these."""
    if not given.keys() <= {*names}:
        raise Declined


ANSWERS: dict[str, Callable[[Given], None]] = {
    "ps": ps,
    "show": show,
    "logs": logs,
    "cancel": cancel,
    "report show": report,
}
