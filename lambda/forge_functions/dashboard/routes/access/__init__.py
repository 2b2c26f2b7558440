"""Coming in: login, single sign-on, keys and sessions."""
