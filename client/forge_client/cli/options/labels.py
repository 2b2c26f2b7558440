"""Labels on the command line: NAME=VALUE."""

from collections.abc import Sequence
from typing import Annotated

import typer

from forge_client.errors import ClientError

LabelOption = Annotated[
    list[str] | None,
    typer.Option("--label", help="NAME=VALUE set by the admin; the worker cannot change it."),
]


def labels(texts: Sequence[str]) -> dict[str, str]:
    """Parse labels from the command line.

    Raises:
        ClientError: one of them is not a label.
    """
    pairs = [text.partition("=") for text in texts]
    for (name, sign, value), text in zip(pairs, texts, strict=True):
        if not (name.strip() and sign and value.strip()):
            raise ClientError(
                f"--label {text!r} is not a label",
                hint="write NAME=VALUE, as in --label zone=eu*",
                code="option_invalid",
            )
    return {name.strip(): value.strip() for name, _, value in pairs}
