"""Options and flags that several commands share, and the functions that parse them."""
