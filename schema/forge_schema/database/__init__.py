"""The database: connections, prepared statements, tables, migrations."""
