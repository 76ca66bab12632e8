"""What every endpoint stands on: services, receive buffers, busy polling."""
