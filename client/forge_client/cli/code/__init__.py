"""The code of jobs: fetch it, compare it, run it again."""
