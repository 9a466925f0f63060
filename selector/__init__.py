"""Selection: pure policies that turn block metadata into a plan of what to merge. No I/O, no clock."""
