"""The sweeper, which moves rows whose time has come."""
