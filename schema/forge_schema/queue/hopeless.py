"""Ends that a retry would only repeat, told by the exit code and the last lines of the output.

The queue asks only about a quick attempt of a job that never made progress: what breaks hours into
a training is no typo, whatever it says.
"""

import re
from datetime import timedelta

from forge_schema.model.lease import End
from forge_schema.model.states import Reason

# An attempt that ran for longer has got somewhere; a cold start of a large framework has not.
QUICK = timedelta(seconds=60)
# What differs between two runs that end the same way: numbers, times, addresses, temporary names.
VARYING = r"\ytmp\w+|[0-9a-f]*[0-9][0-9a-f]*"
NOT_RUN = {126, 127}
# What a worker says when it could not even try; the next worker may.
UNPREPARED = "cannot prepare the job"
# What argparse, click, getopt and pytest end with.
USAGE_CODES = {2, 4, 64}
USAGE = re.compile(r"(error: )?usage: ", re.IGNORECASE)
USAGE_ERROR = re.compile(r"\S+: error: ")
NEVER_LOADED = re.compile(
    r"(ModuleNotFound|Import|Syntax|Indentation|Tab)Error: |\S*python\S*: No module named "
)
NO_SCRIPT = re.compile(r"\S*python\S*: can't (open file|find '__main__' module)")
SHELL_SYNTAX = re.compile(r".*: syntax error", re.IGNORECASE)


def hopeless(end: End) -> bool:
    """Tell whether an attempt ended by a mistake that is still there when it runs again."""
    if end.reason is not Reason.EXIT_CODE:
        return False
    lines = (end.detail or "").splitlines() or [""]
    if end.exit_code in NOT_RUN:
        return not lines[0].startswith(UNPREPARED)
    if end.exit_code in USAGE_CODES and any(map(USAGE.match, lines)):
        return True
    by_code = {1: (NEVER_LOADED, NO_SCRIPT), 2: (USAGE_ERROR, NO_SCRIPT, SHELL_SYNTAX)}
    # A traceback that more output follows was perhaps survived.
    return any(words.match(lines[-1]) for words in by_code.get(end.exit_code or 0, ()))
