"""The Python API: Producer, Consumer and the bulk form."""
