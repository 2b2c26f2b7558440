"""Images: pulled, built, loaded, removed."""
