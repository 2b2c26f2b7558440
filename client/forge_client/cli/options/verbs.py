"""Groups of verbs, `forge THING VERB`, and what they answer to other words."""

from difflib import get_close_matches
from typing import Any

from forge_schema.model.quantities import names_text
from typer.core import TyperGroup

from forge_client.cli.options.other_tools import VERBS

# How alike a word must be to a verb that may be meant, from 0 to 1.
CLOSE = 0.7


class VerbNames(TyperGroup):
    """Names the verb that is meant by the word of another tool, or all verbs."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer hides which click it is
        """Return the command of a verb."""
        if args and args[0] not in self.commands:
            self._refuse(ctx, args[0])
        return super().resolve_command(ctx, args)

    def _refuse(self, ctx: Any, word: str) -> None:  # noqa: ANN401 - as above
        others = (verb for verb in VERBS.get(word, ()) if verb in self.commands)
        if meant := next(others, None) or next(
            iter(get_close_matches(word, self.commands, 1, CLOSE)), ""
        ):
            ctx.fail(f"`forge {self.name}` has no command {word!r}; did you mean {meant!r}?")
        verbs = names_text(list(self.commands), len(self.commands), last="or")
        ctx.fail(f"`forge {self.name}` has no command {word!r}: write {verbs}")
