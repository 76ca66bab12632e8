"""TLS of listeners, whatever they speak: certificates, contexts, their renewal, and what is said when it fails."""
