"""Server endpoints: thin asyncio adapters that take bytes from sockets, ask the broker and answer bytes."""
