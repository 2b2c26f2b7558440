"""Choose which of the machine's GPUs a worker lends: all, none, or those named by `--gpus`."""

from collections.abc import Sequence

from forge_schema.model.errors import ForgeError

from forge_worker.devices.gpu import Gpu


class GpuMissing(ForgeError):
    """`--gpus` names a GPU that this machine does not have."""

    code = "gpu_missing"


def chosen(gpus: Sequence[Gpu], words: Sequence[str]) -> list[Gpu]:
    """Return the GPUs that `--gpus` names, by UUID or by the driver's number; each once.

    A GPU in MIG mode stands for all of its slices.

    Raises:
        GpuMissing: a GPU does not exist, or `all` or `none` is combined with others.
    """
    if list(words) in (["none"], []):
        return []
    if list(words) == ["all"]:
        return list(gpus)
    wanted = {word.casefold() for word in words}
    for word in words:
        if not any(word.casefold() in _names(gpu) for gpu in gpus):
            raise GpuMissing(
                f"--gpus names {word!r}, which is not on this machine", hint=_listing(gpus)
            )
    return [gpu for gpu in gpus if wanted & _names(gpu)]


def _names(gpu: Gpu) -> set[str]:
    return {gpu.uuid.casefold(), str(gpu.number), (gpu.parent or gpu.uuid).casefold()}


def _listing(gpus: Sequence[Gpu]) -> str:
    if not gpus:
        return "no GPU is found on this machine; `--gpus none` offers none"
    listed = "; ".join(f"{gpu.number}: {gpu.uuid} ({gpu.name})" for gpu in gpus)
    return f"write all, none, or some of these, separated by commas, by number or UUID: {listed}"
