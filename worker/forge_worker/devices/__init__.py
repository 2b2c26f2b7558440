"""Detect the accelerators of this machine, with one module per source."""

from forge_worker.devices.gpu import GpuDevice, Use
from forge_worker.devices.inventory import Inventory

__all__ = ["GpuDevice", "Inventory", "Use"]
