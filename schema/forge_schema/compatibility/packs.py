"""Workers that restore no packs of small files. Nothing needs this from 0.4 on."""

# While one of them may be granted a job, nobody packs: it would pass over the newest checkpoint.
VERSION = "0.2.0"
