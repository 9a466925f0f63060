"""One round of reclustering: cut a plan's groups into tasks, have them run, commit their blocks."""
