"""The dashboard: pages rendered on the server and refreshed by polling."""
