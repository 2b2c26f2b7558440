"""forge.toml: a project's defaults for `forge submit`."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, Self

from forge_schema.model.errors import plainly
from forge_schema.model.spec import CODE, Option
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from forge_client.errors import ClientError
from forge_client.project import FILE
from forge_client.project.image_tar import DIGEST
from forge_client.project.request import TABLES, Request, Size, several

_BUILDING = Lock()


class ProjectConnection(BaseModel):
    """The `[connection]` table; it has no secrets, because it lies in the project's folder."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    url: Annotated[str | None, Option("A server; the API key is never in this file.")] = None
    database_url: Annotated[
        str | None, Option("Without a server: the database, postgresql://….")
    ] = None
    store_url: Annotated[
        str | None, Option("Without a server: the store, such as s3://bucket/prefix.")
    ] = None


class Project(Request):
    """A forge.toml: a job, `limit` and `include` of its bundle, `[matrix]`, `[connection]`."""

    # Most folders have none.
    model_config = ConfigDict(defer_build=True)

    limit: Annotated[Size | None, Option("Largest folder to pack; default: 2GiB.", CODE)] = None
    include: Annotated[
        list[str],
        Option("Pack files that are left out by default, e.g. .env; .gitignore patterns.", CODE),
    ] = Field(default_factory=list)
    matrix: Annotated[
        dict[str, list[Any]],
        Option("For `forge benchmark`: each combination is a job.", typed=False),
    ] = Field(default_factory=dict)
    repeat: Annotated[
        PositiveInt,
        Option("For `forge benchmark`: jobs for each point of the matrix.", typed=False),
    ] = 1
    parallel: PositiveInt | None = None
    connection: Annotated[
        ProjectConnection,
        Option("Where the queue is; FORGE_* variables and options come before it.", typed=False),
    ] = ProjectConnection.model_construct()

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the folder's forge.toml; without one, everything is unset.

        Raises:
            ClientError: it is malformed or has an unknown key, named by line and column.
        """
        path = folder / FILE
        if not os.path.lexists(path):
            return cls.model_construct()
        if path.exists() and not path.is_file():
            raise _wrong(path, "is not a file", "write the job's fields into a file of this name")
        with _BUILDING:
            # No two threads at once.
            cls.model_rebuild()
        import tomllib  # noqa: PLC0415 - only for such a file

        try:
            text = path.read_text(encoding="utf-8")
            return cls.model_validate(tomllib.loads(text)).seen_from(folder)
        except OSError as error:
            raise _wrong(path, f"cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise _wrong(path, "is not UTF-8 text") from error
        except tomllib.TOMLDecodeError as error:
            raise _wrong(path, syntax_error(text, error), _syntax_hint(text, error)) from error
        except ValidationError as error:
            raise _field_wrong(path, text, error) from error

    def seen_from(self, folder: Path) -> Self:
        """Return it with the path of its image tar relative to the current folder."""
        if self.image_tar is None or DIGEST.fullmatch(self.image_tar):
            return self
        return self.model_copy(update={"image_tar": str(folder / self.image_tar)})

    def including(self, patterns: Sequence[str] | str | None) -> Self:
        """Return it with more patterns of files to include in the bundle."""
        return self.model_copy(update={"include": [*self.include, *several(patterns or [])]})

    def request(self) -> Request:
        """Return the job that it describes; `parallel` is of the benchmark's sweep."""
        fields = {name: getattr(self, name) for name in Request.model_fields}
        return Request.model_construct(self.model_fields_set, **{**fields, "parallel": None})


@contextmanager
def naming_the_file(folder: Path, requests: Sequence[Request]) -> Iterator[None]:
    """Name the line of a folder's forge.toml that has a value which the queue refuses.

    Raises:
        ClientError: what was raised inside, with the line if all `requests` have its value: the
            queue does not say which of them it refuses.
    """
    try:
        yield
    except ClientError as error:
        path = folder / FILE
        if error.code not in {"spec_invalid", "requirements_invalid"}:
            raise
        import tomllib  # noqa: PLC0415 - only for such a file

        text = path.read_text(encoding="utf-8")
        # Of a list, the whole: only its key has a place of its own.
        named = error.message.partition(":")[0].split(".")
        keys = tuple(key for key in named if not key.isdigit())
        for place in (keys, ("resources", *keys)):
            if _has(tomllib.loads(text), place) and all(
                _same(Project.read(path.parent), request, place) for request in requests
            ):
                line, column = key_position(text, place)
                what = f"line {line}, column {column}: {error.message}"
                raise _wrong(path, what, error.hint) from error
        raise


def _has(table: Any, place: Sequence[str]) -> bool:  # noqa: ANN401 - TOML has no narrower type
    for key in place:
        if not isinstance(table, dict) or key not in table:
            return False
        table = table[key]
    return True


def _same(mine: object, other: object, place: Sequence[str]) -> bool:
    # Below the fields, such as in `env`, all of a field is compared.
    for key in place:
        if isinstance(mine, BaseModel):
            mine, other = getattr(mine, key, None), getattr(other, key, None)
    return mine == other


def _field_wrong(path: Path, text: str, error: ValidationError) -> ClientError:
    first = error.errors()[0]
    keys = tuple(str(part) for part in first["loc"])
    line, column = key_position(text, keys)
    # What is wrong with one of a list is said with its value.
    key = ".".join(key for key in keys if not key.isdigit())
    if first["type"] == "extra_forbidden":
        what, hint = f"unknown key {key!r}", _suggestion(keys)
    else:
        said = NO_COMMAND if _is_no_command(keys, first) else plainly(first["msg"])
        what, hint = f"{key}: {said}", _value_hint(keys, first)
    return _wrong(path, f"line {line}, column {column}: {what}", hint)


def _syntax_hint(text: str, error: ValueError) -> str:
    """Return what to write in the place of a text without quotes; "" if it is something else."""
    line = re.search(r"at line (\d+)", str(error))
    bare = line and BARE.fullmatch(text.splitlines()[int(line[1]) - 1])
    return f'a text needs quotes: write {bare[1]} = "{bare[2]}"' if bare else ""


NO_COMMAND = "it is neither a text nor a list"


def _is_no_command(keys: tuple[str, ...], fault: Mapping[str, Any]) -> bool:
    return keys == ("command",) and fault["type"] == "list_type"


def _value_hint(keys: tuple[str, ...], fault: Mapping[str, Any]) -> str:
    """Return what to write in the place of a value of another type."""
    given = fault["input"]
    if _is_no_command(keys, fault):
        return 'write command = "python train.py", or a list of its words'
    if fault["type"] == "string_type" and isinstance(given, (int, float)):
        text = f'"{str(given).lower()}"'
        return f"write it as {text}" if keys[-1].isdigit() else f"write {keys[-1]} = {text}"
    return ""


def _suggestion(keys: tuple[str, ...]) -> str:
    known = _known(keys[:-1])
    tables = [table for table, model in TABLES.items() if keys[-1] in model.model_fields]
    if tables and len(keys) == 1:
        return f"write {keys[-1]!r} below [{tables[0]}]"
    if near := get_close_matches(keys[-1], known, n=1):
        return f"did you mean {near[0]!r}?"
    below = {key: table for table, model in TABLES.items() for key in model.model_fields}
    if len(keys) == 1 and (near := get_close_matches(keys[0], below, n=1)):
        return f"did you mean {near[0]!r} below [{below[near[0]]}]?"
    return f"known here: {', '.join(sorted(known))}"


def _known(table: tuple[str, ...]) -> list[str]:
    models: dict[tuple[str, ...], type[BaseModel]] = {
        (): Project,
        **{(table,): model for table, model in TABLES.items()},
        ("connection",): ProjectConnection,
    }
    return list(models[table].model_fields)


def _wrong(path: Path, what: str, hint: str = "") -> ClientError:
    return ClientError(f"{path}: {what}", hint=hint, code="project_invalid")


# A key with a value that neither begins as one of TOML nor has anything after it.
BARE = re.compile(r"""\s*([\w.-]+)\s*=\s*([^\s"'\[{#][^"'#]*?)\s*""")
_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")


def key_position(text: str, path: tuple[str, ...]) -> tuple[int, int]:
    """Return the line and column of the key at `path`, or of the nearest enclosing table."""
    position = (1, 1)
    depth = 0
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.fullmatch(line):
            table = at = _parts(header[1])
            column = header.start(1) + 1
        elif key := _KEY.match(line):
            at = (*table, *_parts(key[1]))
            column = key.start(1) + 1
        else:
            continue
        if len(at) > depth and path[: len(at)] == at:
            position, depth = (number, column), len(at)
    return position


def syntax_error(text: str, error: ValueError) -> str:
    """Return the parser's message with its position first; that may be "end of document"."""
    what, _, at = str(error).removesuffix(")").rpartition(" (at ")
    lines = text.splitlines() or [""]
    where = at if at.startswith("line ") else f"line {len(lines)}, column {len(lines[-1]) + 1}"
    return f"{where}: invalid TOML: {what}"


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))
