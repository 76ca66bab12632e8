"""Server endpoints: thin asyncio adapters that take bytes from sockets, call the broker and send responses."""
