"""The newest migration that this version knows; the functions ship without the migrations."""

# Of the same length always, so that the later of two is the greater text.
HEAD = "0013"
