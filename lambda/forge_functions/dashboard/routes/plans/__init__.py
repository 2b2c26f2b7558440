"""What owners keep: schedules, notifications, inputs."""
