"""The agent of one machine: it claims, renews, delivers, and leaves."""
