"""What commands show: text for people, JSON, files of rows, and progress."""
