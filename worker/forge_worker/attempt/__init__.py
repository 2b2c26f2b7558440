"""An attempt as all of its loops share it: lease, folders, secrets, time left."""
