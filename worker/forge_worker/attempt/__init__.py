"""The state of an attempt that all its loops share: lease, folders, secrets, time left."""
