"""The parts that reach a database directly: `forge up`, `forge db`, the direct backend."""
