"""The client over HTTP, for users who have direct access to neither database nor store."""

import sys

# httpx would import its own command, with click, rich and pygments, wherever these are installed.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # None: not to be imported
