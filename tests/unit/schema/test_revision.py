"""The newest migration is known by name, too."""

from __future__ import annotations

from alembic.script import ScriptDirectory
from forge_schema.database.current import HEAD
from forge_schema.database.migrate import MIGRATIONS


def test_the_newest_migration_is_the_one_that_is_named() -> None:
    scripts = ScriptDirectory(str(MIGRATIONS))
    assert scripts.get_heads() == [HEAD]
    assert {len(script.revision) for script in scripts.walk_revisions()} == {len(HEAD)}
