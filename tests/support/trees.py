"""Random folders for tests, and the contents of a folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from forge_client.project.listing import ALWAYS, FILES
from hypothesis import strategies as st

if TYPE_CHECKING:
    from pathlib import Path

    from hypothesis.strategies import SearchStrategy

Tree = dict[str, bytes | str | None]
"""Content by path: bytes of a file, where a link leads; None is an empty folder."""

_NAMES = st.text(
    st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="/\\"),
    min_size=1,
    max_size=12,
) | st.sampled_from(["a", "b", "src", "train.py", "x" * 130, "ü" * 70, ".env", "-rf", " "])
# Hypothesis takes words from the code under test, and some of those are never bundled.
_NAMES = _NAMES.filter(lambda name: name not in {*ALWAYS, *FILES})
_PATHS = st.lists(_NAMES, min_size=1, max_size=4).map("/".join)


def write(root: Path, tree: Tree) -> None:
    """Write a tree below `root`; skip a path that collides with an earlier one."""
    for path, content in tree.items():
        target = root / path
        if content is None:
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            target.symlink_to(content)
        else:
            target.write_bytes(content)


def read(root: Path) -> Tree:
    """Return the contents of `root`; folders are listed only where they are empty.

    Raises:
        AssertionError: an entry is neither a file, nor a folder, nor a link.
    """
    found: Tree = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            found[name] = os.readlink(path)  # noqa: PTH115 - a path would make it tidy
        elif path.is_dir():
            if not any(path.iterdir()):
                found[name] = None
        else:
            assert path.is_file(), name
            found[name] = path.read_bytes()
    return found


def trees() -> SearchStrategy[Tree]:
    """Generate trees; names may be strange, and may collide."""
    return st.dictionaries(_PATHS, st.none() | st.binary(max_size=2000), max_size=12)
