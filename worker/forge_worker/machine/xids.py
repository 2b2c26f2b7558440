"""NVIDIA's XIDs: which of the errors that a driver reports make a GPU unfit for the next job.

The numbers are those of NVIDIA's Xid catalog
(https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html). Fatal here is what the
catalog answers by a reset of the GPU or of its host, NVLink errors, and contained memory errors:
these spare the GPU, but the job that had them is no more to blame than by the others, and until a
reset the memory that they struck is not replaced. Two that the catalog answers by a reset are not:
109, a context switch that takes too long, since mostly a kernel that never ends is behind it, and
156, which says that something was taken out of use, and loses nothing.
"""

FATAL = {
    46: "the GPU stopped processing",
    48: "double-bit ECC error",
    62: "internal micro-controller halted",
    64: "a bad row of memory could not be replaced",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    94: "contained memory error",
    95: "uncontained memory error",
    110: "security fault",
    119: "the GPU's system processor did not answer",
    120: "the GPU's system processor failed",
    136: "NVLink could not be trained",
    140: "ECC error that could not be recovered from",
    143: "the GPU could not be initialised",
    155: "NVLink error",
    158: "fatal time-out of the GPU",
}
# A job that computes nonsense can cause these, and the next job on the GPU does not suffer.
THE_JOBS_OWN = frozenset({13, 31, 32, 43, 45, 68, 69, 109})


def verdict(code: int) -> str | None:
    """Return why a GPU that reported this XID is unfit, or None: it is fit."""
    said = FATAL.get(code)
    return None if said is None else f"XID {code}: {said}"
