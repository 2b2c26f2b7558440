"""The handlers that the operator installed on this machine, as the worker's label tells them."""

from importlib.metadata import entry_points

import structlog
from forge_schema.model.spec import HANDLER, HANDLERS

GROUP = "forge.handlers"
# The longest value of a worker's label.
LABEL_LENGTH = 2000

log = structlog.get_logger(__name__)


def installed_handlers() -> list[str]:
    """Return the names of the handlers that are installed here, in order."""
    named = {point.name for point in entry_points(group=GROUP)}
    if odd := sorted(name for name in named if not HANDLER.fullmatch(name)):
        log.warning("handler_names_invalid", names=odd)
    return sorted(name for name in named if HANDLER.fullmatch(name))


def handlers_label() -> dict[str, str]:
    """Return the label that lists the handlers: `,name,name2,`, so that `*,name,*` finds one."""
    kept: list[str] = []
    for name in installed_handlers():
        if len(",".join(["", *kept, name, ""])) > LABEL_LENGTH:
            log.warning("too_many_handlers", first_left_out=name)
            break
        kept.append(name)
    return {HANDLERS: ",".join(["", *kept, ""])} if kept else {}
