"""What the release before needs: a file a noun, each naming the release that no longer does."""
