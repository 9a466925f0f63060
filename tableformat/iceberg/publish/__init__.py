"""Commit a replacement: manifests written again, the new snapshot, and what stands against it."""
