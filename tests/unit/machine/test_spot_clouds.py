"""Announcements of the clouds, from servers that answer as theirs do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from forge_worker.spot import Metadata, MetadataAbsent, Notice, NoticeKind, left_s
from forge_worker.spot.clouds import Aws, Azure, Gcp
from forge_worker.spot.watch import ABSENT_S, MISSED_S, SpotMarket, SpotWatch
from support.cloud.clouds import Answer, Asked, FakeAws, FakeAzure, FakeCloud, FakeGcp, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from forge_worker.spot.watch import Cloud
    from support.waiting import Eventually

NOW = datetime(2026, 11, 5, 8, 0, tzinfo=UTC)
PROXIES = ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


@contextmanager
def reached(fake: FakeCloud) -> Iterator[Metadata]:
    with serving(fake):
        metadata = Metadata(fake.url)
        try:
            yield metadata
        finally:
            metadata.close()


def interrupted(notice: Notice | None) -> float:
    """Return the seconds left, from an interruption's text."""
    assert notice is not None
    assert notice.kind is NoticeKind.INTERRUPTION
    return notice.left_s


def test_aws_tells_an_interruption_by_its_own_clock_and_renews_a_token() -> None:
    fake = FakeAws()
    # This machine's clock is an hour behind.
    fake.ahead_s = 3600
    with reached(fake) as metadata:
        aws = Aws(metadata)
        assert aws.here()
        assert aws.look() is None
        fake.recommended = True
        assert aws.look() == Notice("aws", NoticeKind.REBALANCE)
        fake.interrupt(in_s=100)
        assert 60 < interrupted(aws.look()) <= 101
        fake.tokens.clear()
        fake.interrupt(in_s=600)
        assert interrupted(aws.look()) == 120
        fake.action = {"action": "stop", "time": "soon"}
        assert interrupted(aws.look()) == 60
    assert fake.asked.count("PUT /latest/api/token") == 2


def test_aws_renews_its_token_before_that_runs_out() -> None:
    fake, now = FakeAws(), [0.0]
    with reached(fake) as metadata:
        aws = Aws(metadata, clock=lambda: now[0])
        aws.look()
        now[0] += 21000
        aws.look()
    assert len(fake.tokens) == 2


def test_gcp_answers_the_question_that_waits(eventually: Eventually) -> None:
    fake = FakeGcp()
    with reached(fake) as metadata, ThreadPoolExecutor(1) as threads:
        gcp = Gcp(metadata)
        assert gcp.here()
        assert gcp.look() is None
        waits = threads.submit(gcp.look)
        eventually(lambda: fake.waiting)
        assert not waits.done()
        fake.preempt()
        assert interrupted(waits.result(timeout=60)) == 30


def test_gcp_waits_for_a_while_only_and_tells_of_maintenance() -> None:
    fake = FakeGcp()
    with reached(fake) as metadata:
        gcp = Gcp(metadata, wait_s=1)
        assert [gcp.look(), gcp.look()] == [None, None]
        fake.maintenance = "MIGRATE_ON_HOST_MAINTENANCE"
        assert gcp.look() is None
        fake.maintenance = "TERMINATE_ON_HOST_MAINTENANCE"
        assert gcp.look() == Notice("gcp", NoticeKind.REBALANCE)
        fake.preempt()
        assert interrupted(gcp.look()) == 30
        # The first query cannot tell how old the notice is.
        assert interrupted(Gcp(metadata).look()) == 15


def test_azure_heeds_what_ends_this_machine_and_says_when_it_may_begin() -> None:
    fake = FakeAzure()
    with reached(fake) as metadata:
        azure = Azure(metadata)
        assert azure.here()
        fake.schedule("Freeze", 900)
        # What is no event of this machine's is passed over.
        odd: dict[str, object] = {"EventType": ["Preempt"], "Resources": None}
        fake.events += [odd, {**odd, "Resources": "pool_0"}, {**odd, "Resources": ["pool_0"]}]
        fake.schedule("Preempt", 30, "pool_1")
        assert azure.look() is None
        fake.schedule("Terminate", 300, "pool_0", "pool_1")
        assert 250 < interrupted(azure.look()) <= 300
        azure.gone()
        assert fake.started == []
        ours = fake.schedule("Preempt", 300)
        assert interrupted(azure.look()) == 30
        azure.gone()
        assert fake.started == [ours]
        fake.schedule("Preempt", 0, status="Started")
        assert interrupted(azure.look()) == 0


@pytest.mark.parametrize(
    ("at_s", "said_s", "clock_s", "expected"),
    [
        (90, 0, 0, 90),
        (90, 0, 3600, 90),
        (600, 0, 0, 120),
        (-5, 0, 0, 0),
        (90, None, 0, 90),
        (90, None, 3600, 60),
        (90, None, -3600, 60),
        (None, 0, 0, 60),
    ],
)
def test_what_is_left_is_never_more_than_the_notice(
    at_s: float | None, said_s: float | None, clock_s: float, expected: float
) -> None:
    def moment(seconds: float | None) -> datetime | None:
        return None if seconds is None else NOW + timedelta(seconds=seconds)

    now = NOW + timedelta(seconds=clock_s)
    assert left_s(moment(at_s), moment(said_s), 120, clock=lambda: now) == expected


def announce_aws(fake: FakeAws) -> None:
    fake.interrupt(60)


def announce_azure(fake: FakeAzure) -> None:
    fake.schedule("Preempt", 20)


@pytest.mark.parametrize(
    ("fake", "announce", "name"),
    [
        (FakeAws(), announce_aws, "aws"),
        (FakeGcp(), FakeGcp.preempt, "gcp"),
        (FakeAzure(), announce_azure, "azure"),
    ],
    ids=["aws", "gcp", "azure"],
)
def test_the_cloud_is_found_past_every_proxy_and_its_notice_told_once(
    fake: FakeCloud,
    announce: Callable[[FakeCloud], None],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable in PROXIES:
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    heard: list[Notice] = []
    with reached(fake) as metadata:
        watch = SpotWatch([Aws(metadata), Gcp(metadata, wait_s=1), Azure(metadata)], heard.append)
        watch.step()
        assert heard == []
        announce(fake)
        for _ in range(3):
            watch.step()
    assert [(one.by, one.kind) for one in heard] == [(name, NoticeKind.INTERRUPTION)]


def test_a_recommendation_is_told_once_and_an_interruption_after_it() -> None:
    fake, heard = FakeAws(), list[Notice]()
    fake.recommended = True
    with reached(fake) as metadata:
        watch = SpotWatch([Aws(metadata)], heard.append)
        watch.step()
        watch.step()
        fake.interrupt(60)
        watch.step()
    assert [one.kind for one in heard] == [NoticeKind.REBALANCE, NoticeKind.INTERRUPTION]


def test_a_recommendation_that_is_withdrawn_is_taken_back_and_heard_anew() -> None:
    fake, heard = FakeAws(), list[Notice]()
    with reached(fake) as metadata:
        watch = SpotWatch([Aws(metadata)], heard.append)
        for fake.recommended in (False, True, True, False, False, True):
            watch.step()
    assert [one.kind for one in heard] == [
        NoticeKind.REBALANCE,
        NoticeKind.WITHDRAWN,
        NoticeKind.REBALANCE,
    ]


class Elsewhere(FakeCloud):
    """Redirects clients to another server."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place

    def answer(self, asked: Asked) -> Answer:
        return 307, "", {"Location": f"{self.place}{asked.path}"}


class Anything(FakeCloud):
    """Has the same answer to everything, as some proxies and sandboxes have."""

    def __init__(self, body: str) -> None:
        super().__init__()
        self.body = body

    def answer(self, asked: Asked) -> Answer:  # noqa: ARG002  as it says
        return 200, self.body, {"Metadata-Flavor": "Google"}


@pytest.mark.parametrize("body", ["", "ok", "<html>log in</html>\n", '{"a": 1}', "x" * (2 << 20)])
@pytest.mark.parametrize("cloud", [Aws, Gcp, Azure])
def test_a_server_that_answers_anything_tells_no_notice(
    cloud: Callable[[Metadata], Cloud], body: str
) -> None:
    heard = list[Notice]()
    with reached(Anything(body)) as metadata:
        watch = SpotWatch([cloud(metadata)], heard.append)
        for _ in range(3):
            watch.step()
        assert heard == []
        if len(body) > 1 << 20:
            with pytest.raises(MetadataAbsent, match="does not end"):
                cloud(metadata).here()


def test_no_redirect_is_followed_and_who_is_absent_is_asked_less_and_less() -> None:
    real, heard = FakeAws(), list[Notice]()
    real.interrupt(60)
    with serving(real):
        fake = Elsewhere(real.url)
        with reached(fake) as metadata:
            clouds: list[Cloud] = [Aws(metadata), Gcp(metadata), Azure(metadata)]
            watch = SpotWatch(clouds, heard.append)
            for _ in range(12):
                watch.step()
            assert watch.period_s == ABSENT_S
            with pytest.raises(MetadataAbsent):
                Aws(metadata).look()
    assert (real.asked, heard) == ([], [])


def test_a_server_that_fails_is_asked_again_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake, heard, blind = FakeAws(), list[Notice](), list[str]()
    with reached(fake) as metadata:
        watch = SpotWatch([Aws(metadata)], heard.append, blind.append)
        watch.step()
        with monkeypatch.context() as patched:
            patched.setattr(fake, "answer", lambda _: (500, "", {}))
            watch.step()
            # A single failure is none.
            assert blind == []
            for _ in range(3):
                watch.step()
        assert (watch.period_s, heard) == (MISSED_S, [])
        assert blind == [
            "the metadata service of aws fails: /latest/meta-data/spot/instance-action: 500"
        ]
        fake.interrupt(60)
        watch.step()
    assert [one.kind for one in heard] == [NoticeKind.INTERRUPTION]
    assert blind[1:] == [""]


@pytest.mark.parametrize(
    ("cloud", "fake", "path"),
    [
        (Aws, FakeAws, "/latest/api/token"),
        (Gcp, FakeGcp, "/computeMetadata/v1/instance/id"),
        (Azure, FakeAzure, "/metadata/instance/compute/name"),
    ],
)
def test_cloud_that_was_named_and_does_not_answer_is_told_until_it_does(
    cloud: Callable[[Metadata], Cloud],
    fake: Callable[[], FakeCloud],
    path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, blind, heard = fake(), list[str](), list[Notice]()
    with reached(made) as metadata:
        watch = SpotWatch([cloud(metadata)], heard.append, blind.append)
        with monkeypatch.context() as patched:
            patched.setattr(made, "answer", lambda _: (403, "", {}))
            for _ in range(9):
                watch.step()
        name = cloud.__name__.lower()
        assert blind == [f"the metadata service of {name} fails: {path}: 403"]
        # A notice has two minutes at most.
        assert watch.period_s == MISSED_S
        watch.step()
    assert (blind[1:], heard) == ([""], [])


def test_machine_of_no_cloud_is_not_blind() -> None:
    blind, heard = list[str](), list[Notice]()
    metadata = Metadata("http://127.0.0.1:9")
    clouds: list[Cloud] = [Aws(metadata), Gcp(metadata), Azure(metadata)]
    watch = SpotWatch(clouds, heard.append, blind.append)
    for _ in range(5):
        watch.step()
    metadata.close()
    assert (blind, heard) == ([], [])


@pytest.mark.parametrize(
    ("cloud", "fake", "other"),
    [(Aws, FakeAws, "on-demand"), (Gcp, FakeGcp, "FALSE"), (Azure, FakeAzure, "Regular")],
)
def test_the_cloud_says_whether_it_is_a_spot_machine_unless_the_operator_does(
    cloud: Callable[[Metadata], Cloud], fake: Callable[[], FakeAws], other: str
) -> None:
    said = {}
    made = fake()
    with reached(made) as metadata:
        for says in (made.market, other):
            made.market = says
            for told in ("auto", "yes", "no"):
                market = SpotMarket(told)
                SpotWatch([cloud(metadata)], lambda _: None, market=market).look_around()
                said[says == other, told] = market.labels()
    spot = {"forge.spot": "yes"}
    assert said == {
        (False, "auto"): spot,
        (False, "yes"): spot,
        (False, "no"): {},
        (True, "auto"): {},
        (True, "yes"): spot,
        (True, "no"): {},
    }


def test_a_cloud_that_does_not_say_it_is_asked_again_and_its_notices_are_seen() -> None:
    fake, heard, market = FakeAws(), list[Notice](), SpotMarket()
    answer = fake.answer
    with reached(fake) as metadata:
        watch = SpotWatch([Aws(metadata)], heard.append, market=market)
        fake.interrupt(60)
        fake.answer = lambda asked: (  # type: ignore[method-assign]  # it fails for a while
            (500, "", {}) if asked.path.endswith("life-cycle") else answer(asked)
        )
        watch.step()
        assert (market.labels(), [one.kind for one in heard]) == ({}, [NoticeKind.INTERRUPTION])
        fake.answer = answer  # type: ignore[method-assign]  # as above
        watch.look_around()
    assert market.labels() == {"forge.spot": "yes"}
