"""What the SDK consists of; `forge_client` exports its public names."""
