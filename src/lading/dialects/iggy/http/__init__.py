"""The JSON documents of Iggy's HTTP face, as the generation with message state writes and reads them (iggy.md A5)."""
