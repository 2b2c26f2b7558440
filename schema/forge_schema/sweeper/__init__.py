"""The sweeper: moves rows whose time has come."""
