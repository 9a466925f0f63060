"""What commands are asked: options and flags that several share, and the functions that parse them."""
