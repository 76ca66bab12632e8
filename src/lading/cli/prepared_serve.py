"""``lading serve`` that imports first and receives its arguments later (``lading.testing.prepared_process``)."""

from __future__ import annotations

import gc
import json
import os
import select
from contextlib import suppress
from importlib import import_module
from pkgutil import resolve_name
from typing import Any, Final

from .main import START_OBJECTS, main

STANDARD_INPUT: Final = 0
STANDARD_ERROR: Final = 2
REQUEST_BYTES: Final = 64 << 10
IDLE_S: Final = 0.05
"""After a parent was silent for this long, kernels are loaded, as that delays no broker."""
IMPORTED_LATER: Final = (
    "encodings.idna",
    "lading.broker.core.injected_faults",
    "lading.broker.core.maintenance",
    "lading.broker.core.settings",
    "lading.serve.duties",
    "lading.cli.serve",
    "lading.dialects.kafka.validation_fallback",
    "lading.endpoints.base.append_wait",
    "lading.endpoints.base.broker_settings",
    "lading.endpoints.base.garbage",
    "lading.endpoints.kafka.server",
    "lading.log.group_commit",
    "lading.serve.parent_pipe",
    "lading.serve.serve",
    "typer._adapters",
    "typer._click.decorators",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.httptools_impl",
)
"""Modules that a broker imports only when it starts."""


def import_broker() -> None:
    """Import the modules of a broker in its order, without opening or starting anything."""
    from ..dialects.protocols import ENDPOINTS
    from ..serve.lean_imports import install_lean_imports
    from .connection import load_defaults

    install_lean_imports()
    import_module("lading.broker.broker")
    for spec in ENDPOINTS.values():
        resolve_name(spec.factory)
    for name in IMPORTED_LATER:
        import_module(name)
    with suppress(ImportError):
        # if it is installed
        import_module("uvloop")
    # their validator is created when settings are first read
    load_defaults()


def _load_until_asked() -> None:
    """Load what every message passes, unless that has to be compiled, which takes minutes; then Kafka's codecs."""
    from ..endpoints.kafka.server import prepare_codecs_until
    from ..kernels import engine

    if (engine.cache_dir() / engine.COMPLETE).exists():
        for home in engine.USED_BY_ALL:
            if _is_asked():
                return
            engine.load(home)
    prepare_codecs_until(_is_asked)


def _is_asked() -> bool:
    return bool(select.select([STANDARD_INPUT], [], [], IDLE_S)[0])


def _read_request() -> dict[str, Any] | None:
    """Return the request for a broker; None if none is needed."""
    line = b""
    while not line.endswith(b"\n"):
        read = os.read(STANDARD_INPUT, REQUEST_BYTES)
        if not read:
            return None
        line += read
    request: dict[str, Any] = json.loads(line)
    return request


def serve_as_asked() -> None:
    """Import, wait for the arguments, and run as the requested broker."""
    # as the command does: objects made by imports stay
    gc.set_threshold(START_OBJECTS)
    import_broker()
    _load_until_asked()
    request = _read_request()
    if request is None:
        return
    log_file = os.open(request["log_file"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.dup2(log_file, STANDARD_ERROR)
    os.close(log_file)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    main(request["arguments"])


if __name__ == "__main__":
    serve_as_asked()
