"""The launchers of gangs, by the name that a job gives."""

from forge_schema.model.states import Launcher as Name

from forge_worker.gang.launchers import accelerate, deepspeed, mpirun, none, ray, torchrun
from forge_worker.gang.launchers.launcher import Launch, Launcher, LauncherUnable

LAUNCHERS: dict[str, Launcher] = {
    Name.TORCHRUN: torchrun.launch,
    Name.ACCELERATE: accelerate.launch,
    Name.DEEPSPEED: deepspeed.launch,
    Name.MPIRUN: mpirun.launch,
    Name.RAY: ray.launch,
    Name.NONE: none.launch,
}
# Those that start a process for each GPU.
PER_GPU = {Name.TORCHRUN, Name.ACCELERATE, Name.DEEPSPEED, Name.MPIRUN}

__all__ = ["LAUNCHERS", "PER_GPU", "Launch", "LauncherUnable"]
