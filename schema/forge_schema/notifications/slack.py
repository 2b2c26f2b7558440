"""Messages in the format that Slack's incoming webhooks take, and many others too."""

from collections.abc import Iterable

from forge_schema.notifications.messages import Facts, line, url_of

ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def slack_body(messages: Iterable[Facts]) -> dict[str, str]:
    """Return the body that shows messages, a line each, with links to their pages."""
    return {"text": "\n".join(map(_linked, messages))}


def _linked(message: Facts) -> str:
    said, url = line(message).translate(ESCAPES), url_of(message)
    return f"{said} (<{url}|open>)" if url else said
