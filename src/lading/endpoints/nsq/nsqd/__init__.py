"""nsqd's two listeners: TCP sessions that publish and consume, and HTTP."""
