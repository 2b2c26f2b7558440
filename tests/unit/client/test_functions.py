"""Calls of functions that could only fail in the job are refused at the submit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import forge_client as forge
import pytest
from forge_client import ClientError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator


def add(first: int, *, second: int = 1) -> int:
    return first + second


async def later() -> int:
    return 1


def each() -> Iterator[int]:
    yield 1


async def each_later() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("submit", "said"),
    [
        (lambda job: job.submit(), "missing a required argument: 'first'"),
        (lambda job: job.submit(1, 2), "too many positional arguments"),
        (lambda job: job.submit(1, third=3), "unexpected keyword argument 'third'"),
        (lambda job: job.map([1], [2]), "too many positional arguments"),
        (lambda job: job.map([1, 2], [3]), "the same length"),
    ],
)
def test_arguments_that_the_function_does_not_take(submit: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(ClientError, match=said):
        submit(forge.job(add))


@pytest.mark.parametrize("function", [later, each, each_later])
def test_functions_that_do_not_return_what_they_find(function: Callable[[], Any]) -> None:
    with pytest.raises(ClientError, match="needs a plain function"):
        forge.job(function).submit()


def test_nothing_to_call_is_no_jobs() -> None:
    assert forge.job(add).map([]) == []
