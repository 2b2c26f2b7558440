"""One line each for training libraries: resume, commit checkpoints, report, leave when asked.

Like `forge_worker.job`, these files are added to every job, with any Python from 3.8 on. Each
imports its library only when it is used, and nothing else.
"""
