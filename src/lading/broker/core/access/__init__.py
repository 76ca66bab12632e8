"""Users, their passwords and rights, and what each may use of the broker."""
