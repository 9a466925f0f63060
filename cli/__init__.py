"""The `tblctl` command: parsing and rendering only. Everything it does, `tblctl`'s Python interface does."""
