"""Messages of all Iggy generations: header blocks, and scanning, cutting and salvaging stored messages."""
