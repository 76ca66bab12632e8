"""The payload of messages: paths into it, and one walker a format that locates the values of the paths."""
