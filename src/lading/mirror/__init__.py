"""Topics copied from one system to another: resumable, with offsets mapped, and with proof of what survived."""
