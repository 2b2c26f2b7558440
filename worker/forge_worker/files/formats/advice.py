"""What to do about a file that is written all the time, by its format."""

from pathlib import PurePosixPath

DATABASES = frozenset([".db", ".db3", ".sqlite", ".sqlite3", ".duckdb", ".mdb", ".lmdb", ".wal"])
LOGS = ("-wal", "-journal")
ARRAYS = frozenset([".npy", ".dat", ".mmap", ".memmap", ".raw"])
HDF5 = frozenset([".h5", ".hdf5", ".nc"])


def advice(path: str) -> str:
    """Return how to have a file stored that is being written whenever a checkpoint is due."""
    suffix = PurePosixPath(path).suffix
    if suffix in DATABASES or path.endswith(LOGS):
        return (
            "SQLite can be stored in use with `PRAGMA journal_mode=WAL`; or copy the database now"
            " and then, as with `VACUUM INTO`, or use a storage that appends, as Optuna's"
            " JournalStorage"
        )
    if suffix in ARRAYS:
        return "save a copy of the array now and then, to another file that is then renamed"
    if suffix in HDF5:
        return (
            "close it after each save, or write to another file and rename it when it is complete"
        )
    if ".zarr/" in path:
        return (
            "pause between two saves, or write to another folder and rename it when it is complete"
        )
    return "write to another file and rename it when it is complete"
