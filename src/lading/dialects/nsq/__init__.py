"""NSQ: the v2 protocol with Youzan's extend headers, its messages as stored, sent and delivered."""
