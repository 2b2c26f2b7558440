"""Objects for holders of leases."""
