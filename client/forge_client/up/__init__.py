"""`forge up`: a whole Forge on this machine."""
