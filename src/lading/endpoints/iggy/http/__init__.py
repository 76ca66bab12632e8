"""Iggy's HTTP interface: routes, logins and the documents of requests and responses."""
