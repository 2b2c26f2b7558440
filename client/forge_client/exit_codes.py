"""What the `forge` command's exit status says; docs/exit-codes.md is the same list for people."""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit status of `forge`; `submit --wait` otherwise exits with the job's own."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNREACHABLE = 5
    SETUP = 6
    DENIED = 7
    TIMED_OUT = 124
    NO_RESULT = 125
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.OK: "done",
    ExitCode.FAILED: "failed",
    ExitCode.USAGE: "bad input",
    ExitCode.NOT_FOUND: "not found",
    ExitCode.CONFLICT: "refused",
    ExitCode.UNREACHABLE: "unreachable",
    ExitCode.SETUP: "set up wrongly",
    ExitCode.DENIED: "not allowed",
    ExitCode.TIMED_OUT: "--wait: out of time",
    ExitCode.NO_RESULT: "--wait: no exit code of the job's own",
    ExitCode.INTERRUPTED: "Ctrl-C",
}
