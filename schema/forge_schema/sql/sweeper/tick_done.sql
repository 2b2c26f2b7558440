-- Records that a sweeper has completed a tick.
UPDATE sweeper SET swept_at = forge_now()
