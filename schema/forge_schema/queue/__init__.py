"""The queue: submit, claim, renew, finish, and who may have what."""
