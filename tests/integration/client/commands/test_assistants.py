"""The tools of assistants, called by the protocol's own client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from forge_client import Client
from forge_client.cli.assistant.log_page import plain
from forge_client.cli.assistant.reading import PAGE_BYTES
from forge_client.errors import ClientError
from forge_schema.model.states import Reason, Role
from support.client.reaching import key, reaching
from support.http.server import served, server_settings
from support.queue.holder import Holder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mcp import Client as Assistant
    from support.queue.rig import Rig

CHANGING = {"submit", "submit_sweep", "rerun", "run_schedule", "fetch_artifacts", "cancel"}


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return (tmp_path / "store").as_uri()


@pytest.fixture
def client(rig: Rig, store_url: str) -> Iterator[Client]:
    with reaching("direct", rig, store_url) as client:
        yield client


def assistant_of(connect: Callable[[], Client], *, read_only: bool = False) -> Assistant:
    """Return the protocol's client, with the tools of ours."""
    from forge_client.cli.assistant.server import made_server  # noqa: PLC0415  half a second
    from mcp import Client as Assistant  # noqa: PLC0415  as above

    return Assistant(made_server(connect, read_only=read_only))


def call(connect: Callable[[], Client], tool: str, **arguments: Any) -> tuple[str, bool]:  # noqa: ANN401  the tool's
    """Call a tool, and return its answer and whether that is an error."""

    async def called() -> tuple[str, bool]:
        async with assistant_of(connect) as assistant:
            result = await assistant.call_tool(tool, arguments)
            return result.content[0].text, bool(result.is_error)  # type: ignore[union-attr]

    return asyncio.run(called())


def ask(client: Client, tool: str, **arguments: Any) -> str:  # noqa: ANN401  the tool's
    text, failed = call(lambda: client, tool, **arguments)
    assert not failed, text
    return text


def test_every_tool_says_whether_it_changes_something_and_those_can_be_left_out() -> None:
    async def tools(*, read_only: bool) -> dict[str, bool]:
        async with assistant_of(Client, read_only=read_only) as assistant:
            listed = (await assistant.list_tools()).tools
            return {t.name: bool(t.annotations and t.annotations.read_only_hint) for t in listed}

    reading = asyncio.run(tools(read_only=True))
    assert all(reading.values())
    assert asyncio.run(tools(read_only=False)) == reading | dict.fromkeys(CHANGING, False)


def test_a_log_is_read_in_pages_that_miss_and_repeat_nothing(
    rig: Rig, client: Client, store_url: str
) -> None:
    rig.submit(name="talks")
    holder = Holder(rig, store_url)
    lines = [f"line {number} of many" for number in range(1500)]
    text = "\n".join(lines) + "\n"
    for begin in range(0, len(text), 9_000):
        holder.write(text[begin : begin + 9_000].encode())
    pages, cursor = [], "start"
    while True:
        page, _, follow = ask(client, "logs", job="talks", cursor=cursor).rpartition("\nnext: ")
        assert len(page) <= PAGE_BYTES
        cursor = follow.split("cursor='")[1].split("'")[0]
        pages.append(page)
        if follow.startswith("later"):
            break
    assert "\n".join(pages).split("\n") == lines
    holder.write(b"one more\n")
    assert ask(client, "logs", job="talks", cursor=cursor).startswith("one more\nnext: ")
    assert ask(client, "logs", job="talks").split("\n")[-2] == "one more"


def test_output_that_is_on_its_way_is_waited_for_and_told_if_it_is_lost(
    rig: Rig, client: Client, store_url: str
) -> None:
    rig.submit(name="talks")
    holder = Holder(rig, store_url)
    holder.write(b"first\n")
    # Workers send several pieces at once: the one before this may come later.
    holder._start += 5
    holder.write(b"third\n")
    assert ask(client, "logs", job="talks", cursor="start").startswith("first\nnext: later")
    holder.end()
    whole = ask(client, "logs", job="talks", cursor="start")
    assert whole.startswith("first\n\n[5 B cannot be read]\nthird\nnext: that is all")


def test_a_line_longer_than_a_page_comes_whole(rig: Rig, client: Client, store_url: str) -> None:
    rig.submit(name="talks")
    holder = Holder(rig, store_url)
    holder.write(b"a" * (PAGE_BYTES + 10) + b"\nend\n")
    first = ask(client, "logs", job="talks", cursor="start")
    cursor = first.split("cursor='")[1].split("'")[0]
    second = ask(client, "logs", job="talks", cursor=cursor)
    assert (first + second).count("a" * PAGE_BYTES) == 1
    assert second.startswith("aaaaaaaaaa\nend\n")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("10%\r50%\r100%\ndone", "100%\ndone"),
        ("\x1b[31mred\x1b[0m\r\n", "red\n"),
        ("a\r\nb\r", "a\nb"),
        ("\x1b]0;title\x07text", "text"),
    ],
)
def test_text_is_what_a_terminal_would_end_up_with(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_nothing_is_cancelled_before_that_is_confirmed(rig: Rig, client: Client) -> None:
    rig.submit(name="keep")
    assert "would cancel 1 'keep', queued" in ask(client, "cancel", jobs=["keep"])
    assert client.job(1).state == "queued"
    assert "job 1: cancelled" in ask(client, "cancel", jobs=["keep"], confirm=True)
    assert "job 1: cancelled" in ask(client, "cancel", jobs=["1"], confirm=True)


@pytest.mark.filterwarnings("ignore:left out")
def test_a_job_is_planned_run_again_and_run_by_its_schedule(client: Client, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=1")
    given = {"folder": str(tmp_path), "command": "true {n}", "fields": {"name": "x"}}
    planned = ask(client, "submit", dry_run=True, **given)
    assert "would submit 1 job: {" in planned
    assert "left out: .env (credentials)" in planned
    assert "no online worker can run it: start a worker" in planned
    swept = ask(client, "submit_sweep", matrix={"n": [1, 2]}, dry_run=True, **given)
    text, refused = call(lambda: client, "submit", gpu=1, **given)
    assert ("submit has no argument 'gpu'\nnext: a field of the job" in text, refused) == (
        True,
    ) * 2
    assert ("would submit 2 jobs" in swept, client.jobs()) == (True, [])
    # A plan takes no number.
    assert "job 1 'x' is submitted" in ask(client, "submit", **given)
    again = ask(client, "rerun", job="x", command="false", fields={"priority": 3})
    newest, _ = client.jobs()
    assert (f"job {newest.job_id} 'x' is submitted" in again, newest.priority) == (True, 3)
    client.schedule("nightly", "0 3 * * *", tmp_path, "true", include=".env")
    assert "'nightly' is submitted" in ask(client, "run_schedule", name="nightly")
    last = f"last job {client.jobs()[0].job_id} queued"
    assert f"nightly: 0 3 * * * UTC, active, {last}" in ask(client, "schedules")


@pytest.mark.parametrize(
    ("tool", "given", "said"),
    [
        ("cancel", {"jobs": "49"}, 'jobs: write a list, as in ["a", "b"]'),
        ("job", {}, "job needs job"),
        ("logs", {"job": ["7"]}, 'job: write a text, as in "name"'),
        ("jobs", {"count": "many"}, "count: write a whole number"),
        ("cancel", {"jobs": [7], "confirm": "maybe"}, "confirm: write true or false"),
        (
            "submit",
            {"folder": "/x", "command": {}},
            'command: write a text, as in "name", or write a list, as in ["a", "b"]',
        ),
        (
            "submit",
            {"folder": "/x", "command": "ls", "fields": 3},
            'fields: write an object, as in {"name": "value"}',
        ),
    ],
)
def test_an_argument_of_another_kind_is_told_what_to_write(
    client: Client, tool: str, given: dict[str, Any], said: str
) -> None:
    assert call(lambda: client, tool, **given) == (said, True)


def test_a_job_that_failed_is_shown_with_its_last_words(
    rig: Rig, client: Client, store_url: str
) -> None:
    rig.submit(name="fails", max_failures=0)
    holder = Holder(rig, store_url)
    holder.write(b"loading\nKeyError: 'lr'\n")
    holder.end(Reason.EXIT_CODE, exit_code=1)
    answer = ask(client, "job", job="@last")
    assert "fails failed exit code 1" in answer
    assert "KeyError: 'lr'" in answer


def test_a_key_that_may_only_look_does_no_more_by_an_assistant(
    rig: Rig, store_url: str, tmp_path: Path
) -> None:
    rig.submit(name="ours", owner="ann")
    with (
        served(server_settings(rig.url, store_url)) as url,
        Client(url=url, api_key=key(rig, role=Role.VIEWER)) as viewer,
    ):
        assert "1 ours queued" in ask(viewer, "jobs")
        text, failed = call(lambda: viewer, "submit", folder=str(tmp_path), command="true")
        assert failed
        assert "role" in text


def test_what_is_missing_is_told_at_the_call_and_found_at_a_later_one(client: Client) -> None:
    missing = [ClientError("nothing is configured", hint="run `forge up`")]

    def connect() -> Client:
        if missing:
            raise missing.pop()
        return client

    async def two_calls() -> list[bool | None]:
        async with assistant_of(connect) as assistant:
            return [(await assistant.call_tool("jobs", {})).is_error for _ in range(2)]

    assert asyncio.run(two_calls()) == [True, False]
