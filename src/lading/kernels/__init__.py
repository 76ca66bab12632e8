"""The few machine-near primitives, once: unaligned memory, checksums, the sync loop, and how kernels are compiled."""
