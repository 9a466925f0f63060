"""What `benchmarks.merge` compares: contenders sort the same blocks by the same key, in processes of their own."""
