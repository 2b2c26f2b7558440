"""The routes of the pages, one file per page."""
