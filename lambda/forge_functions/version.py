"""The version of Forge, read once: the package's metadata takes milliseconds to parse."""

from importlib.metadata import version

VERSION = version("forge-queue")
