"""The variables by which a process sees its GPUs, and none that other jobs use.

They are a convention between a job and its libraries, and no boundary.
"""

from collections.abc import Sequence

# AMD's runtime hides first, by UUID; its layers above count what is left, from 0.
HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}


def visible(uuids: Sequence[str], vendor: str) -> dict[str, str]:
    """Return the variables for a job that has these GPUs; with none, it sees none."""
    if not uuids:
        return dict(HIDDEN)
    if vendor == "amd":
        numbers = ",".join(str(number) for number in range(len(uuids)))
        return {"ROCR_VISIBLE_DEVICES": ",".join(uuids), "HIP_VISIBLE_DEVICES": numbers}
    return {"CUDA_VISIBLE_DEVICES": ",".join(uuids)} if vendor == "nvidia" else {}
