"""Jobs kept for later: templates and schedules."""
