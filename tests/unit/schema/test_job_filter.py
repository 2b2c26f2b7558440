"""The filter's grammar: printed filters parse to the same, and errors name the mistake."""

from __future__ import annotations

import pytest
from forge_schema.job_filter import FIGURES, LENGTH, REPEATED, Filter, FilterInvalid, parse
from forge_schema.model.states import TERMINAL_STATES, JobKind, Reason, State, StateWord
from hypothesis import given
from hypothesis import strategies as st

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
FREE = ("owner", "queue", "name", "worker", "sweep", "experiment")
SPAN = st.lists(st.tuples(st.integers(0, 999), st.sampled_from("smhdw")), min_size=1, max_size=2)


def some(values: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(values, min_size=1, max_size=2, unique=True).map(tuple)


def words(kinds: type[StateWord | Reason | JobKind]) -> st.SearchStrategy[tuple[str, ...]]:
    return some(st.sampled_from([word.value for word in kinds]))


FIGURE = st.tuples(
    TEXT.filter(lambda t: not set("=<>") & set(t)),
    st.just("")
    | st.text('ab ,"\\*=<', max_size=5).map(lambda t: f"={t}")
    | st.tuples(st.sampled_from(["<", "<=", ">", ">="]), st.integers() | st.floats(-1e9, 1e9)).map(
        lambda pair: f"{pair[0]}{pair[1]}"
    ),
).map("".join)
LABEL = st.tuples(TEXT.filter(lambda t: "=" not in t), st.none() | st.text('ab ,"\\*=', max_size=5))
FILTERS = st.builds(
    Filter,
    st.lists(TEXT, max_size=2).map(tuple),
    st.fixed_dictionaries(
        {},
        optional={
            "state": words(StateWord),
            "reason": words(Reason),
            "kind": words(JobKind),
            "since": SPAN.map(lambda parts: ("".join(f"{n}{unit}" for n, unit in parts),)),
            "id": some(st.integers(0, 10**18 - 1).map(str)),
            **{key: some(TEXT) for key in FREE},
        },
    ),
    st.lists(
        st.tuples(
            st.just("label"),
            some(LABEL.map(lambda pair: pair[0] if pair[1] is None else f"{pair[0]}={pair[1]}")),
        )
        | st.tuples(st.sampled_from(FIGURES), some(FIGURE))
        | st.tuples(st.just("tag"), some(TEXT)),
        max_size=3,
    ).map(lambda terms: tuple(sorted(terms, key=lambda term: REPEATED.index(term[0])))),
)


@given(FILTERS)
def test_what_is_printed_reads_as_the_same(wanted: Filter) -> None:
    assert parse(str(wanted)) == wanted


@given(st.text(max_size=40) | st.text('param:id,"\\ *=<1', max_size=40))
def test_whatever_is_written_is_a_filter_or_is_refused_by_its_place(text: str) -> None:
    refused: FilterInvalid | None = None
    try:
        wanted = parse(text)
    except FilterInvalid as error:
        refused = error
    if refused is None:
        assert parse(str(wanted)) == wanted
    else:
        assert 0 <= refused.start <= refused.end <= len(text)
        assert refused.hint


@given(FILTERS, st.sampled_from(["running", "failed"]))
def test_a_chip_pressed_twice_changes_nothing(wanted: Filter, state: str) -> None:
    there_and_back = wanted.toggled("state", state).toggled("state", state)
    assert set(there_and_back.values("state")) == set(wanted.values("state"))
    assert there_and_back.having("state") == wanted.having("state")


def test_the_example_of_the_docs() -> None:
    wanted = parse(
        'state:running,queued owner:ann name:"a b",resnet* label:zone=eu* since:1d12h oom'
    )
    assert wanted.values("state") == ("running", "queued")
    assert wanted.values("name") == ("a b", "resnet*")
    assert (wanted.each("label"), wanted.words) == ((("zone=eu*",),), ("oom",))
    assert wanted.values("since") == ("1d12h",)


def test_a_number_names_a_job_and_a_quoted_one_is_a_part_of_a_name() -> None:
    wanted = parse('35 state:failed id:36 37,38 "39" 4x')
    assert (wanted.values("id"), wanted.words) == (("35", "36", "37", "38"), ("39", "4x"))
    assert str(parse('"39"')) == '"39"'


def test_the_words_that_users_read_stand_for_states() -> None:
    assert parse("state:queued,failed").states == {
        State.READY, State.SCHEDULED, State.FAILED, State.DEAD,
    }  # fmt: skip
    with pytest.raises(FilterInvalid, match="'dead' is not a valid state"):
        parse("state:dead")
    assert parse("owner:ann").states == set(State)
    assert {state for word in StateWord for state in word.states} == set(State)


def test_a_filter_is_narrowed_to_states() -> None:
    over = parse("state:queued,failed x").within(TERMINAL_STATES)
    assert over is not None
    assert over.states == {State.FAILED, State.DEAD}
    assert over.words == ("x",)
    assert parse("state:queued").within(TERMINAL_STATES) is None


def test_me_is_the_caller() -> None:
    assert parse("owner:me,bob").seen_by("ann").values("owner") == ("ann", "bob")


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("abc staet:ready", (4, 15), "not a key"),
        ("state:redy", (0, 10), "'redy' is not a valid state"),
        ("state:faild", (0, 11), "did you mean 'failed'"),
        ("stat:failed", (0, 11), "did you mean 'state'"),
        ("state:", (0, 6), "lacks a value"),
        ("owner:ann,", (0, 10), "lacks a value"),
        ("since:2days", (0, 11), "neither an age nor a time"),
        ("since:9999w", (0, 11), "neither an age nor a time"),
        ("since:1d,2d", (0, 11), "neither an age nor a time"),
        ("label:=x", (0, 8), "lacks its name"),
        ("param:=x", (0, 8), "not a name, or a name and a value"),
        ("x param:lr,lr<big", (2, 17), "'big' is not a number"),
        ("metric:loss<low", (0, 15), "'low' is not a number"),
        ("x loss<0.2", (2, 10), "'loss<0.2' compares, and a word is a part of the name"),
        ("param:lr>1e999", (0, 14), "'1e999' is not a number"),
        ("id:35,resnet", (0, 12), "'resnet' is not the id"),
        ("owner:ann owner:bob", (10, 19), "twice"),
        ('x name:"a b', (2, 11), "not closed"),
        ("x" * (LENGTH + 1), (LENGTH, LENGTH + 1), "characters"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(
    text: str, place: tuple[int, int], said: str
) -> None:
    with pytest.raises(FilterInvalid, match=said) as caught:
        parse(text)
    assert (caught.value.start, caught.value.end) == place
