"""Other issuers whose tokens are accepted: of people, and of pods that become workers."""
