"""Who looks at a page, and what protects the visit."""
