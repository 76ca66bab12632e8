"""The toy's bytes."""
