"""Read-only queries: jobs, pages, the overview, reports."""
