"""NSQ: nsqlookupd, nsqd, queues."""
