"""The toy's listening side."""
