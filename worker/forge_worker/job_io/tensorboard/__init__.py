"""TensorBoard's event files: the scalars in them, as lines of metrics."""
