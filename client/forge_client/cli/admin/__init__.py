"""Commands about the installation and the fleet."""
