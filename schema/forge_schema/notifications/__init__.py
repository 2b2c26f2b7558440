"""Notifications: notice events, write messages, and send them."""
