"""A project's folder and forge.toml, and the jobs that they describe."""

FILE = "forge.toml"
