"""Every path of the HTTP API, with the fields of its requests and answers."""

from collections.abc import Iterator, Mapping
from typing import Any

from forge_functions.server import whole_app
from forge_functions.settings import ServerSettings
from tabular import cell, table

HEAD = """\
# Requests and answers

Generated from the server's own description, which it serves as `/openapi.json`.
[The HTTP API](../http-api.md) explains authentication, errors and how to send a request twice.
"""
Json = Mapping[str, Any]


def page() -> str:
    """Return the page about requests and answers."""
    unused = {"database_url": "postgresql://none", "store_url": "file:///none"}
    settings = ServerSettings.model_validate({**unused, "server_secret": "-" * 32})
    document = whole_app(settings).openapi()
    return "\n".join([HEAD, *_paths(document), *_kinds(document)])


def _paths(document: Json) -> Iterator[str]:
    for path, methods in sorted(document["paths"].items()):
        for method, operation in methods.items():
            yield f"## `{method.upper()} {path}`\n"
            yield (operation.get("description") or operation.get("summary", "")).strip() + "\n"
            yield from _parameters(operation)
            yield from _bodies(operation)


def _parameters(operation: Json) -> Iterator[str]:
    rows = [
        (f"`{one['name']}`", one["in"], _kind(one["schema"]), cell(one.get("description", "")))
        for one in operation.get("parameters", ())
    ]
    if rows:
        yield table(("parameter", "in", "type", "meaning"), rows)


def _bodies(operation: Json) -> Iterator[str]:
    for title, message in (
        ("Body", operation.get("requestBody", {})),
        ("Answer", operation["responses"].get("200", {})),
    ):
        for kind, content in message.get("content", {}).items():
            shown = _kind(content.get("schema", {}))
            if shown != "any":
                yield f"{title} (`{kind}`): {shown}\n"


def _kinds(document: Json) -> Iterator[str]:
    yield "## Fields\n"
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield f"### {name}\n"
        yield f"{' '.join(schema.get('description', '').split())}\n"
        needed = schema.get("required", ())
        rows = [
            (f"`{field}`", _kind(of), "yes" if field in needed else "", _meaning(of))
            for field, of in schema.get("properties", {}).items()
        ]
        if rows:
            yield table(("field", "type", "required", "meaning"), rows)
        else:
            yield f"{_kind(schema)}\n"


def _meaning(schema: Json) -> str:
    default = schema.get("default")
    after = "" if default in (None, "", [], {}) else f" Default: `{default}`."
    return cell(schema.get("description", "") + after)


def _kind(schema: Json) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        kinds = dict.fromkeys(_kind(one) for one in schema["anyOf"])
        return " or ".join(kind for kind in kinds if kind != "null")
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("format") or schema.get("type", "any"))
