"""NSQ: the v2 protocol with Youzan's extend headers, and its messages as they are stored, sent and delivered."""
