"""The worker: leases jobs and runs them."""
