"""Databases: how to copy them while their programs use them."""
