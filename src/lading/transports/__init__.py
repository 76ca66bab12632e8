"""The client side of each protocol, blocking and small: asks a server, or a directory, and gives dialect bytes back."""
