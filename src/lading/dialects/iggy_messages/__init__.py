"""What the messages of all Iggy generations share: header blocks; how stored ones are scanned, cut and rescued."""
