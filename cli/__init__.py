"""The `tblctl` command: parsing and rendering. The Python interface of `tblctl` does the work."""
