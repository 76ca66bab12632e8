"""The client side of a schema registry: schemas by id and GUID, kept in memory and on disk."""
