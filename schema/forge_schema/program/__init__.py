"""What programs set up as they start: their settings, their log, and imports that they need."""
