"""Whether two topics hold the same messages, headers included, in any two systems that are read by offset."""
