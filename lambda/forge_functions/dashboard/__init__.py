"""The dashboard: pages on the same app, rendered here and polled by the browser."""
