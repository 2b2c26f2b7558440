"""How a verb is declared once, for callers in this process and for those of a server.

`@verb("GET", "/queue/jobs/{job_id}/events")` on a method of the service is all that the server's
route and the HTTP client are made from: names, types and defaults of the parameters
are those of the request, and the first paragraphs of the docstring describe the path.
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, wraps
from importlib import import_module
from typing import Annotated, Any, Literal, Protocol, TypeVar, get_args

from forge_schema.model.fields import Answer
from forge_schema.model.states import Role

F = TypeVar("F", bound=Callable[..., Any])
Where = Literal["path", "query", "body", "whole", "server"]
NamedFields = Literal["", "job", "other"]
API = "/api/v1"
VIEWER, SUBMITTER, ADMIN = Role.VIEWER, Role.SUBMITTER, Role.ADMIN
# Where a name in an annotation is looked for that its module imports only for type checkers.
MODELS = (
    *("model.job", "model.stored", "model.worker", "model.overview", "model.explanation"),
    *("model.admin", "service.job_requests", "model.spec"),
)


def _as_it_is(value: Any, _owner: str | None = None) -> Any:  # noqa: ANN401 - any value
    return value


@dataclass(frozen=True)
class Sent:
    """How a parameter travels; without it, under its own name and as the type that it has.

    Args:
        name: its name in the request.
        kind: its type in the request, or the name of one in a model that takes long to import.
        write: makes what is sent of a caller's value, and of the owner that a client acts for.
        read: makes the value again.
        where: `query` of any request, the `whole` body, or filled in by the `server`.
        required: whether a request must have it, although callers in Python need not give it.
    """

    name: str = ""
    kind: Any = None
    write: Callable[[Any, str | None], Any] = _as_it_is
    read: Callable[[Any], Any] = _as_it_is
    where: Where | None = None
    required: bool = False


FilledIn = Annotated[str, Sent(where="server")]
"""What a server adds to a request by the parameter's name: see `forge_functions.routes.verbs`."""


@dataclass(frozen=True, eq=False)
class Parameter:
    """A parameter of a verb: its name, the field of a request that it is, and where that stands."""

    name: str
    field: str
    written: Any
    default: Any
    where: Where
    sent: Sent

    @property
    def kind(self) -> Any:  # noqa: ANN401 - any type
        """Its type in a request."""
        return model_called(self.written) if isinstance(self.written, str) else self.written

    @property
    def required(self) -> bool:
        """Whether a request must have it."""
        return self.default is inspect.Parameter.empty or self.sent.required


@dataclass(frozen=True)
class Pages:
    """A list that is answered in pages: the next one is `after` fields of the last item.

    A page is full with `full` items, by default as many as were asked for, or with `most_bytes`.
    """

    after: Mapping[str, str]
    full: int | None = None
    most_bytes: int | None = None


@dataclass(frozen=True)
class Verb:
    """A declared verb; see `verb`."""

    function: Callable[..., Any]
    method: str
    path: str
    role: Role
    again: bool
    answered: type[Answer] | str | None
    errors: tuple[int, ...]
    status: int
    pages: Pages | None
    tag: str
    names_fields: NamedFields
    signed: bool
    bare: bool
    title: str

    @property
    def name(self) -> str:
        """The name of the method."""
        return self.function.__name__

    @property
    def answer(self) -> type[Answer] | None:
        """The model of the answer, if it is not what the method returns."""
        answer = self.answered
        kind: type[Answer] | None = model_called(answer) if isinstance(answer, str) else answer
        return kind

    @property
    def about(self) -> str:
        """What it does, as its docstring says before what is only for Python."""
        text = inspect.getdoc(self.function) or ""
        return text.partition("\n\nArgs:")[0].partition("\n\nRaises:")[0]

    @cached_property
    def parameters(self) -> list[Parameter]:
        """Its parameters in order."""
        return [
            self._parameter(parameter)
            for parameter in list(self._signature.parameters.values())[1:]
        ]

    @property
    def returns(self) -> Any:  # noqa: ANN401 - any type
        """The type that it returns."""
        return self._signature.return_annotation

    def bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name, with defaults."""
        bound = self._signature.bind(None, *args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    @cached_property
    def _signature(self) -> inspect.Signature:
        names = _Names(self.function.__globals__)
        return inspect.signature(self.function, locals=names, eval_str=True)

    def _parameter(self, parameter: inspect.Parameter) -> Parameter:
        kinds = getattr(parameter.annotation, "__metadata__", ())
        sent = next((kind for kind in kinds if isinstance(kind, Sent)), Sent())
        field = sent.name or parameter.name
        where = sent.where or ("query" if self.method in {"GET", "DELETE"} else "body")
        if f"{{{field}}}" in self.path or f"{{{field}:" in self.path:
            where = "path"
        kind = parameter.annotation if sent.kind is None else sent.kind
        return Parameter(parameter.name, field, kind, parameter.default, where, sent)


class Remote(Protocol):
    """Asks a server to do a verb."""

    def __call__(self, verb: Verb, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as the verb
        """Return what the verb returns."""


def verb(
    method: str,
    path: str,
    role: Role = VIEWER,
    *,
    again: bool = True,
    answer: type[Answer] | str | None = None,
    errors: tuple[int, ...] = (),
    status: int = 200,
    pages: Pages | None = None,
    tag: str = "jobs",
    names_fields: NamedFields = "",
    signed: bool = False,
    bare: bool = False,
    title: str = "",
) -> Callable[[F], F]:
    """Declare a method as a verb. Of an object with a `remote`, it is done by a server.

    Args:
        method: of HTTP.
        path: below `/api/v1`, with the names of parameters in braces.
        role: the lowest that may do it; whoever sees all owners may do a `GET` of any role.
        again: whether a client may repeat it when no answer came.
        answer: has in its fields what the method returns, unless that is a record, or a list. It is
            the model's name if few need it.
        errors: the statuses that it may refuse with, besides those of any verb.
        status: of success.
        pages: the pages of a list.
        tag: the group of paths in the API's description.
        names_fields: of what a refusal names the fields that people wrote.
        signed: whether a server adds a temporary URL to each of the stored objects in the answer.
        bare: whether a request may come without the body, of which nothing is required.
        title: what the body is called in the API's description, if not as the method.
    """

    def declared(function: F) -> F:
        whole = Verb(
            function, method, API + path, role, again, answer, errors, status, pages, tag,
            names_fields, signed, bare, title or function.__name__,
        )  # fmt: skip

        @wraps(function)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the verb
            remote: Remote | None = self.remote
            if remote is None:
                self.caller.require(role, reading=method == "GET")
                return function(self, *args, **kwargs)
            return remote(whole, args, kwargs)

        vars(call)["declared"] = whole
        made: Any = call
        return made  # type: ignore[no-any-return]

    return declared


def declared_in(room: type) -> list[Verb]:
    """Return the verbs that a class declares, inherited ones first, in their order."""
    kinds = [vars(kind).values() for kind in reversed(room.__mro__)]
    verbs = (getattr(method, "declared", None) for methods in kinds for method in methods)
    return [verb for verb in verbs if isinstance(verb, Verb)]


def item_of(returns: Any) -> Any:  # noqa: ANN401 - any type
    """Return the type of the items that a verb returns a list of; None if it is no list."""
    return get_args(returns)[0] if getattr(returns, "__origin__", None) is list else None


class _Names(dict[str, Any]):
    """The names in annotations: those of the module, or of a model that is imported for it."""

    def __init__(self, module: Mapping[str, Any]) -> None:
        super().__init__()
        self._module = module

    def __missing__(self, name: str) -> Any:  # noqa: ANN401 - whatever it names
        if name in self._module or hasattr(builtins, name):
            raise KeyError(name)
        return model_called(name)


def model_called(name: str) -> Any:  # noqa: ANN401 - a class, or an annotated type
    """Return what has a name in one of the models."""
    for model in MODELS:
        kind = vars(import_module(f"forge_schema.{model}")).get(name)
        if kind is not None:
            return kind
    raise KeyError(name)
