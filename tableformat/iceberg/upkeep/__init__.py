"""Remove what tblctl left behind, and expire snapshots."""
