"""The few machine-near primitives, once: unaligned memory, checksums, the sync loop, and who compiles them when."""
