"""Notices that the machine will be taken away: who says it, how long is left, what is done."""
