-- Whether the database is reachable and migrated, and by which clock it lives.
SELECT forge_now() AS now, version_num FROM alembic_version
