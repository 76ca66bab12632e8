"""The JSON documents of Iggy's HTTP endpoint, as the generation with message state has them (iggy.md A5)."""
