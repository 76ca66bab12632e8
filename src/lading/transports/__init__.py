"""The client side of each protocol, blocking and small: requests data of a server or a directory, in the dialect's
bytes.
"""
