"""Sentences for what goes wrong at an object store: its address, its bucket, its credentials, its response."""

from __future__ import annotations

from typing import Final

from ...model.errors import LadingError, LocalError, RemoteError, SettingError, Unreachable
from .storage import find_references, root_of

NO_CREDENTIALS: Final = (
    "169.254.169.254", "169.254.170.2", "metadata.google.internal", "Missing AccessKeyId", "Missing SecretAccessKey"
)  # fmt: skip
"""Parts of errors about missing credentials.

They are the addresses at which machines of a cloud request their role's credentials, if the environment has none, and
words of the libraries.
"""
REFUSED: Final = ("status code: 401", "status code: 403")
NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound")
"""Error codes of stores for a bucket that does not exist, and of Azure for a container."""
NO_ADDRESS: Final = ("UrlNotRecognised", "Unable to recognise URL", "MissingAccount")
GRANTS: Final = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "abfss": "AZURE_STORAGE_ACCOUNT_KEY, or AZURE_CLIENT_ID and AZURE_CLIENT_SECRET",
}
ADDRESSES: Final = {
    "s3": ("Amazon S3", "s3://BUCKET/PREFIX"),
    "gs": ("Google Cloud Storage", "gs://BUCKET/PREFIX"),
    "abfss": ("an Azure container", "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX"),
}


def store_error(url: str, error: Exception) -> LadingError:
    """Return the sentence for an error that a library raised when it reached for an object."""
    text = str(error)
    if any(word in text for word in NO_CREDENTIALS):
        return _no_credentials_error(url)
    if is_missing_bucket(error):
        return missing_bucket_error(url)
    if any(status in text for status in REFUSED):
        # a listing has no error of its own for it
        return refused_error(url, error)
    return Unreachable(f"{url}: the store does not answer: {_shorten_error(text)}; start it, or run this again")


def unreadable_error(url: str, error: Exception) -> LocalError | SettingError:
    """Return the sentence for a location or options that a library refuses before it sends a request."""
    if any(word in str(error) for word in NO_CREDENTIALS):
        return _no_credentials_error(url)
    store, address = ADDRESSES[_scheme_of(url)]
    if any(word in str(error) for word in NO_ADDRESS):
        return SettingError(f"{url}: not an address of {store}; write {address}")
    return SettingError(
        f"{url}: the store's address or credentials cannot be read: {_shorten_error(str(error))}; they come from "
        f"{_origin_of(url)}, correct them there"
    )


def refused_error(url: str, error: Exception) -> RemoteError:
    """Return the sentence for credentials that the store refuses."""
    return RemoteError(
        f"{url}: the store refuses these credentials{_code_of(error)}; they come from {_origin_of(url)} and need the "
        f"rights to list, get, put and delete below {root_of(url)}"
    )


def is_missing_bucket(error: Exception) -> bool:
    """Return whether the store said that the bucket, not only the object, does not exist."""
    return any(word in str(error) for word in NO_BUCKET)


def missing_bucket_error(url: str) -> LocalError:
    """Return the sentence for a bucket that does not exist."""
    noun = "container" if _scheme_of(url) == "abfss" else "bucket"
    return LocalError(f"{url}: the {noun} {root_of(url)} does not exist; create it, or name another one")


def _no_credentials_error(url: str) -> LocalError:
    return LocalError(
        f"{url}: no credentials: set {GRANTS[_scheme_of(url)]} in the environment of this process and of its "
        "executors, say in [storage] of the pipeline's file or by --storage where they are, or run it on a machine "
        "whose role has them"
    )


def _origin_of(url: str) -> str:
    """Return the place that this process has its credentials from."""
    references = find_references(url)
    if references is not None and references.has_credentials(_scheme_of(url)):
        return references.origin
    return f"the environment ({GRANTS[_scheme_of(url)]})"


def _scheme_of(url: str) -> str:
    return url.partition(":")[0]


def _shorten_error(text: str) -> str:
    """Return the message of an error of the library, without the document and the call that follow it."""
    what = text.partition("<?xml")[0].partition("Debug source")[0].partition("\n\n\n")[0]
    return " ".join(what.replace("\x1b[31m↳\x1b[0m", "").split())


def _code_of(error: Exception) -> str:
    """Return the store's own error code, in brackets."""
    _, found, rest = str(error).partition("<Code>")
    return f" ({rest.partition('</Code>')[0]})" if found else ""
