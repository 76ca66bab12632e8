"""The endpoints of an NSQ node: nsqd and nsqlookupd, over TCP and HTTP, and what they share (docs/reference/nsq.md)."""
