"""Data classes are as Python's; what threads share is made once, as until Python 3.11."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest
from forge_schema.classes import dataclass, made_once

THREADS = 4


class Shared:
    def __init__(self) -> None:
        self.begun = 0
        self.all_here = Barrier(THREADS)

    @made_once
    def connection(self) -> object:
        self.begun += 1
        # Without a lock, the other threads begin meanwhile.
        Event().wait(0.05)
        return object()


def test_threads_that_read_it_at_once_see_the_same_object() -> None:
    shared = Shared()

    def read(_: int) -> object:
        shared.all_here.wait()
        return shared.connection

    with ThreadPoolExecutor(THREADS) as pool:
        seen = list(pool.map(read, range(THREADS)))
    assert len(set(map(id, seen))) == 1
    assert shared.begun == 1


@dataclass(frozen=True, slots=True)
class Place:
    host: str
    port: int = 80
    key: str = dataclasses.field(default="", repr=False)
    seen: int = dataclasses.field(default=0, compare=False)
    beside: list[Place] = dataclasses.field(default_factory=list)


@dataclass
class Counter:
    count: int = 0


@dataclass(eq=False)
class Alone:
    count: int = 0


@dataclass(frozen=True)
class Nothing:
    pass


def test_a_data_class_is_equal_to_one_of_its_class_with_the_same_compared_fields() -> None:
    place = Place("a", key="k", seen=1)
    assert place == Place("a", key="k", seen=2)
    assert place != Place("a", key="other")
    assert Nothing() == Nothing()
    assert Counter(1) == Counter(1)
    assert Alone(1) != Alone(1)


def test_a_frozen_data_class_has_a_hash_and_another_one_has_none() -> None:
    @dataclass(frozen=True)
    class Key:
        name: str
        seen: int = dataclasses.field(default=0, compare=False)

    assert {Key("a"): 1}[Key("a", seen=1)] == 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(Counter())
    assert len({Alone(), Alone()}) == 2


def test_a_data_class_shows_its_fields_as_pythons_do() -> None:
    place = Place("a", key="secret")
    place.beside.append(place)
    assert repr(place) == "Place(host='a', port=80, seen=0, beside=[...])"


def test_pythons_functions_take_a_data_class() -> None:
    place = Place("a", beside=[Place("b")])
    assert dataclasses.replace(place, port=1) == Place("a", 1, beside=[Place("b")])
    assert dataclasses.asdict(Counter(2)) == {"count": 2}
    assert copy.deepcopy(place) == pickle.loads(pickle.dumps(place)) == place  # noqa: S301 - its own
