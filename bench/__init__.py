"""Each file answers one question, as a ratio measured in one run on one machine."""
