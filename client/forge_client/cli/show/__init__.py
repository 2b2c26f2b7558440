"""What commands say and show."""
