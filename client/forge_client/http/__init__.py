"""Forge through its HTTP functions: what a user needs who reaches neither database nor store."""
