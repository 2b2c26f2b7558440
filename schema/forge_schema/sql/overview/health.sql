-- Whether the database is reachable and migrated, and its time.
SELECT forge_now() AS now, version_num FROM alembic_version
