"""Groups of verbs that were one command: `forge sweep NAME` is now `show NAME` of the group."""

from typing import Any

from forge_schema.model.quantities import names_text
from typer.core import TyperGroup

from forge_client.cli.show import narration

HELP = ("--help", "-h")


class ShowByDefault(TyperGroup):
    """Takes words without a verb for those of `show`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer hides which click it is
        """Put `show` before the words of an earlier version."""
        if args and args[0] not in {*self.commands, *HELP}:
            options = [word.startswith("-") for word in args[:2]]
            if options == [False, False]:
                verbs = names_text(list(self.commands), len(self.commands), last="or")
                ctx.fail(f"`forge {self.name}` has no command {args[0]!r}: write {verbs}")
            if not options[0]:
                narration.say(f"`forge {self.name} …` is now `forge {self.name} show …`", "dim")
            args = ["show", *args]
        return super().parse_args(ctx, args)
