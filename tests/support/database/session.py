"""Forge's settings for a test's own connection that is already open."""

from __future__ import annotations

from forge_schema.database.connections import SETTINGS

SESSION = "".join(f"SET {name} = '{value}';" for name, value in SETTINGS.items())
