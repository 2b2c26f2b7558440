"""The settings of the programs: read with clear errors, and shown as help."""
