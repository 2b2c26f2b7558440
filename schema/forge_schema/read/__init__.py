"""Everything that is only read: jobs, pages, the overview, reports."""
