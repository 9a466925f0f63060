"""Selection: pure policies from block metadata to a plan of what to merge. No I/O, no clock."""
