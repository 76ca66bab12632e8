"""nsqlookupd's two listeners: where producers register and consumers look topics up."""
