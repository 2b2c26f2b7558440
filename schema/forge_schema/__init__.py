"""The database: tables, migrations, the queue and its statements, and object storage."""
