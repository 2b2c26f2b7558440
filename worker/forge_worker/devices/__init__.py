"""The accelerators of this machine, one file per source of knowledge; none is ever invented."""

from forge_worker.devices.gpu import Gpu, Use
from forge_worker.devices.inventory import Inventory

__all__ = ["Gpu", "Inventory", "Use"]
