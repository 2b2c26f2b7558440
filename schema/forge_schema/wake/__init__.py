"""Wake-ups: which of this process's workers sleep, and whom a notification wakes."""
