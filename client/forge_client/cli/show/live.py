"""A screen of the terminal that is drawn again and again, until q or Ctrl-C."""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from rich.console import RenderableType
from rich.live import Live

from forge_client.cli.show import screen
from forge_client.cli.show.keyboard import keyboard
from forge_client.errors import ClientError
from forge_client.exit_codes import ExitCode

T = TypeVar("T")


def watch(
    look: Callable[[], T], view: Callable[[T, int, str], RenderableType], every_s: float
) -> None:
    """Show what `look` returns. While the queue does not answer, the last view stays.

    Args:
        look: asks the queue.
        view: renders what was seen in so many lines, and the current trouble.
        every_s: the seconds between two looks.
    """
    seen, trouble = look(), ""
    console = screen.console()
    with (
        suppress(KeyboardInterrupt),
        keyboard() as keys,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            live.update(view(seen, console.size.height, trouble), refresh=True)
            if keys.pressed("qQ", every_s):
                return
            try:
                seen, trouble = look(), ""
            except ClientError as error:
                if error.exit_code != ExitCode.UNREACHABLE:
                    raise
                trouble = error.message
