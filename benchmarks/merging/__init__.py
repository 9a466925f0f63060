"""The contenders of `benchmarks.merge`: each sorts the same blocks by the same key in its own process."""
