"""A project's folder and forge.toml, and the jobs that they describe."""

from pathlib import Path

FILE = "forge.toml"
SCHEMA = Path(__file__).with_name("forge-toml.schema.json")
