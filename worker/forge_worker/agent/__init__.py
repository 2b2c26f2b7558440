"""The agent of one machine: it claims jobs, renews leases, delivers ends, and leaves."""
