"""The client over HTTP, for users who have direct access to neither database nor store."""
