"""Commands about the installation and the workers."""
