"""Recognise failures that a retry would only repeat, by exit code and last lines of output.

The queue applies this only to a quick attempt of a job that never made progress: a failure hours
into a training run is not a typo, whatever its message.
"""

import re
from datetime import timedelta

from forge_schema.model.lease import End
from forge_schema.model.states import Reason

# Longer attempts have made progress; the cold start of a large framework is shorter.
QUICK = timedelta(seconds=60)
# Text that differs between two runs with the same end: numbers, times, addresses, temporary names.
VARYING = r"\ytmp\w+|[0-9a-f]*[0-9][0-9a-f]*"
NOT_RUN = {126, 127}
# A worker's message when it could not start the job. Another worker may be able to.
UNPREPARED = "cannot prepare the job"
# Exit codes of argparse, click, getopt and pytest for a usage error.
USAGE_CODES = {2, 4, 64}
USAGE = re.compile(r"(error: )?usage: ", re.IGNORECASE)
USAGE_ERROR = re.compile(r"\S+: error: ")
NEVER_LOADED = re.compile(
    r"(ModuleNotFound|Import|Syntax|Indentation|Tab)Error: |\S*python\S*: No module named "
    r"|\S*python\S*: Error while finding module specification for "
)
NO_SCRIPT = re.compile(r"\S*python\S*: can't (open file|find '__main__' module)")
# pip's words, through a worker, for a package that is in none of its indexes.
NO_PACKAGE = re.compile(r"installing .+: ERROR: .+ \(from versions: none\)")
SHELL_SYNTAX = re.compile(r".*: syntax error", re.IGNORECASE)


def hopeless(end: End) -> bool:
    """Tell whether an attempt failed in a way that a retry would only repeat.

    A start that failed is one that the same worker would only repeat.
    """
    if end.reason is Reason.START_FAILED:
        return end.lasting
    if end.reason is not Reason.EXIT_CODE:
        return False
    lines = (end.detail or "").splitlines() or [""]
    if end.exit_code in NOT_RUN:
        return not lines[0].startswith(UNPREPARED)
    if end.exit_code in USAGE_CODES and any(map(USAGE.match, lines)):
        return True
    by_code = {1: (NEVER_LOADED, NO_SCRIPT, NO_PACKAGE), 2: (USAGE_ERROR, NO_SCRIPT, SHELL_SYNTAX)}
    # The job may have survived a traceback that is followed by more output.
    return any(words.match(lines[-1]) for words in by_code.get(end.exit_code or 0, ()))
