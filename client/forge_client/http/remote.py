"""A verb of the service, done by a server: the request and the answer follow its declaration."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import nullcontext
from datetime import datetime
from typing import Any, cast
from urllib.parse import quote
from uuid import UUID

from forge_schema.model.stored import Stored
from forge_schema.service.verb import Parameter, Verb, item_of
from pydantic import BaseModel

from forge_client.errors import as_client_error
from forge_client.http.errors import rejected_job
from forge_client.http.transport import Transport


class ServerVerbs:
    """Asks a server.

    Args:
        transport: how to reach it.
        owner: whose things are meant unless another's are; None is the key's owner.
    """

    def __init__(self, transport: Transport, owner: str | None) -> None:
        self._transport = transport
        self._owner = owner

    def __call__(self, verb: Verb, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as the verb
        """Return what a verb returns.

        Raises:
            ClientError: an argument is wrong, it was refused, or nothing answers.
        """
        with as_client_error():
            arguments = verb.bound(args, kwargs)
            given = self._given(verb, arguments)
        with rejected_job() if verb.names_fields else nullcontext():
            answer = self._transport.ask(
                verb.method,
                _path(verb.path, given),
                again=verb.again,
                params=_of(given, "query"),
                json=_body(verb, given),
            )
        return self._value(verb, arguments, answer)

    def _given(self, verb: Verb, arguments: Mapping[str, Any]) -> dict[Parameter, Any]:
        """Return what is sent for each parameter. What is None by default is left out."""
        written = {
            parameter: _plain(parameter.sent.write(arguments[parameter.name], self._owner))
            for parameter in verb.parameters
            if parameter.where != "server"
        }
        return {
            parameter: value
            for parameter, value in written.items()
            if value is not None or parameter.required
        }

    def _value(self, verb: Verb, arguments: Mapping[str, Any], answer: object) -> Any:  # noqa: ANN401 - as the verb
        returns = verb.returns
        if verb.answer is not None:
            return self._transport.record(verb.answer, answer).value()
        if (item := item_of(returns)) is not None:
            if not (isinstance(item, type) and issubclass(item, BaseModel)):
                return self._transport.items(answer)
            # A stored object is asked for anew by its job, which the answer does not repeat.
            more = {"job_id": arguments["job_id"]} if issubclass(item, Stored) else {}
            return self._transport.records(item, answer, **more)
        if isinstance(returns, type) and issubclass(returns, BaseModel):
            return self._transport.record(returns, answer)
        return None if returns is None else answer


def _path(path: str, given: Mapping[Parameter, Any]) -> str:
    for parameter, value in given.items():
        if parameter.where == "path":
            before, _, rest = path.partition(f"{{{parameter.field}")
            path = f"{before}{quote(str(value), safe='')}{rest.partition('}')[2]}"
    return path


def _body(verb: Verb, given: Mapping[Parameter, Any]) -> Any:  # noqa: ANN401 - any JSON
    whole = [value for parameter, value in given.items() if parameter.where == "whole"]
    if whole:
        return whole[0]
    has_body = any(parameter.where == "body" for parameter in verb.parameters)
    return _of(given, "body") if has_body else None


def _of(given: Mapping[Parameter, Any], where: str) -> dict[str, Any]:
    return {
        parameter.field: value for parameter, value in given.items() if parameter.where == where
    }


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    is_list = isinstance(value, Collection) and not isinstance(value, str | bytes)
    return [_plain(item) for item in cast("Collection[object]", value)] if is_list else value
