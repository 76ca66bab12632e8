"""The base of every endpoint: services, receive buffers, busy polling."""
