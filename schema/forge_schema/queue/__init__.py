"""The queue: submit, claim, renew, finish, and limits."""
