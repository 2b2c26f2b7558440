"""Commands as people write them, and the signs in them that only a shell would understand."""

import re
import shlex
from collections.abc import Sequence

# As words of their own. A `;` may also be an argument, as of `find -exec`, and after an option each
# may be: `cut -d '|'`.
SIGNS = frozenset({"&&", "||", "|", "|&", "&", ">", ">>", "<", "<<", "2>", "2>>", "2>&1", "&>"})
# What stands in quotes or behind a backslash is meant as it is.
AS_IT_IS = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
# In a line, also where it touches the word before or after it.
IN_A_LINE = re.compile(r"&&|\|\|?|(?<!\S)(?:[12&]?>>?|<<?)|;|&(?!\S)")


def words_of(line: str) -> list[str]:
    """Return the words of a line, split as a shell splits them.

    Raises:
        ValueError: its quotation marks do not match, or it needs a shell.
    """
    words = shlex.split(line)
    if sign := IN_A_LINE.search(AS_IT_IS.sub("_", line)):
        raise ValueError(_no_shell(sign[0], line.strip()))
    return words


def without_signs(words: Sequence[str]) -> Sequence[str]:
    """Return the words of a command.

    Raises:
        ValueError: one of them is a sign for a shell.
    """
    after = zip(["-", *words], words, strict=False)
    if sign := next((word for before, word in after if word in SIGNS and before[:1] != "-"), ""):
        line = " ".join(word if word in SIGNS else shlex.quote(word) for word in words)
        raise ValueError(_no_shell(sign, line))
    return words


def _no_shell(sign: str, line: str) -> str:
    return f"no shell would read {sign!r}; for one, write: bash -c {shlex.quote(line)}"
