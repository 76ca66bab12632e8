"""Iggy of the generation of crate 0.0.40: typed headers, message state, CRC-32 of the payload."""
