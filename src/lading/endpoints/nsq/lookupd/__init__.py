"""nsqlookupd's two listeners: producers register there, and consumers look topics up."""
