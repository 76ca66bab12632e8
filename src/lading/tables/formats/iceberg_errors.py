"""Errors of pyiceberg, its catalogs and what these are made of, as sentences that say what to do."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from ...model.errors import LadingError, LocalError, RemoteError, Unreachable
from ..storage.object_path import TablePath

AWAY: Final = ("ServiceUnavailableError", "ServerError")
FORBIDDEN: Final = ("UnauthorizedError", "ForbiddenError", "OAuthError", "AuthorizationExpiredError")
"""Errors of pyiceberg by what they say of a catalog, which a retry may find back, or may not."""
LIBRARY_LOG: Final = logging.getLogger("pyiceberg.io.pyarrow")


@contextmanager
def translate_library_errors(
    directory: TablePath, catalog: str, log_error: Callable[[Exception], LocalError], *, is_own: bool
) -> Iterator[None]:
    """Raise the errors of a table's catalog as ours; ``log_error`` gives the sentence for any other of the library.

    ``is_own`` is whether the catalog is the one in the table's directory.
    """
    try:
        with warnings.catch_warnings():
            # of metadata of before that others have deleted
            warnings.simplefilter("ignore")
            LIBRARY_LOG.addFilter(_is_of_note)
            yield
    except LadingError:
        raise
    except FileNotFoundError as error:
        raise log_error(error) from error
    except Exception as error:
        # errors of pyiceberg, its catalogs and its formats have no class in common
        which = f"the table {directory}: the Iceberg catalog {catalog!r}"
        if (of_catalog := _catalog_error(error, which, is_own=is_own)) is not None:
            raise of_catalog from error
        if isinstance(error, OSError):
            raise
        raise log_error(error) from error
    finally:
        LIBRARY_LOG.removeFilter(_is_of_note)


def _catalog_error(error: Exception, which: str, *, is_own: bool) -> LadingError | None:
    """Return the sentence for a catalog that is not there or not open to us; None for any other error."""
    library, name = type(error).__module__.partition(".")[0], type(error).__name__
    advice = "in ~/.pyiceberg.yaml, or in PYICEBERG_CATALOG__…"
    if library == "requests" or name in AWAY:
        # what follows the colon of the first line may be an address with a login in it
        return Unreachable(f"{which} does not answer ({name}); start it, or correct its URI {advice}")
    if name in FORBIDDEN:
        return RemoteError(f"{which} refuses this login ({name}); correct credential or token {advice}")
    if library == "sqlalchemy" and not is_own:
        cause = str(getattr(error, "orig", None) or name).partition("\n")[0]
        return LocalError(f"{which}: its database cannot be used: {cause}; fix that, or correct its URI {advice}")
    return None


def _is_of_note(record: logging.LogRecord) -> bool:
    # files have no bounds of binary columns on purpose, and pyiceberg warns of each of them
    return not str(record.msg).startswith("PyArrow statistics missing")
