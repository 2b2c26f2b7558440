"""The end of a quick answer."""


class Declined(Exception):
    """The whole command has to answer; nothing has been said or done yet."""
