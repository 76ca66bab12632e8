"""Adds the toy to every Python that starts with this directory on its path, children of children too."""

from tests.house.toy_protocol.edits import install

install()
