"""Jobs kept for later: job configs and schedules."""
