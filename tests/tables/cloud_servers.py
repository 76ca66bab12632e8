"""Servers of Google Cloud Storage and Azure's blobs that nobody here wrote: fake-gcs-server and Azurite.

Azurite comes from npm, fake-gcs-server from its Go module; each is had once in the user's cache. Neither has a
directory for its buckets.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.interop import go_programs
from tests.interop.kafka_broker import free_ports

FAKE_GCS: Final = ("github.com/fsouza/fake-gcs-server", "v1.56.1")
AZURITE: Final = "azurite@3.35.0"
INSTALL_TIMEOUT_S: Final = 300
START_TIMEOUT_S: Final = 60.0
INSTALLING: Final = "LADING_TEST_FULL=1 puts it into the cache once"
ACCOUNT: Final = "lading"
ACCOUNT_KEY: Final = base64.b64encode(b"a key of an account in a test, nothing else").decode()


@dataclass(frozen=True)
class CloudServer:
    """A running server: its address, what ``[storage]`` and the environment say to find it, and where others read."""

    scheme: str
    url: str
    secret_name: str
    """The credential's name in ``[storage]``, as ``secret`` is what it is."""
    secret: str
    wrong_secret: str
    readers: dict[str, str]
    """Properties of pyiceberg's own file systems."""
    make_bucket: Callable[[str], str]

    def create_bucket(self, name: str) -> str:
        """Create a bucket or a container; returns its URL."""
        return self.make_bucket(name)

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs to find it."""
        if self.scheme == "gs":
            return {"GOOGLE_SERVICE_ACCOUNT_KEY": self.secret, "GOOGLE_BASE_URL": self.url}
        # which tells deltalake that the server knows no listing from a name on
        return {
            "AZURE_STORAGE_ACCOUNT_KEY": self.secret, "AZURITE_BLOB_STORAGE_URL": self.url.rpartition("/")[0],
            "AZURE_STORAGE_USE_EMULATOR": "true",
        }  # fmt: skip

    def at(self, url: str) -> CloudServer:
        """Return the same server as it is reached through what listens at this address."""
        return replace(self, url=url + urlsplit(self.url).path)


@contextmanager
def run_google_server(directory: Path) -> Iterator[CloudServer]:
    """Run fake-gcs-server, and before it the XML API that it lacks, until the block ends."""
    directory.mkdir(parents=True, exist_ok=True)
    program = _fake_gcs()
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    command = [
        str(program), "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", str(port),
        "-public-host", address, "-external-url", f"http://{address}", "-log-level", "error",
    ]  # fmt: skip
    private, public = _make_key()
    (directory / "public.pem").write_text(public)
    front = [sys.executable, "-m", "tests.tables.google_xml", str(port), str(directory / "public.pem")]
    with ExitStack() as children:
        _launch(children, command, address, directory)
        process = subprocess.Popen(front, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True)
        children.callback(_end, process)
        assert process.stdout is not None
        url = f"http://127.0.0.1:{int(process.stdout.readline())}"

        def make_bucket(name: str) -> str:
            made = urllib.request.Request(
                f"http://{address}/storage/v1/b?project=lading", json.dumps({"name": name}).encode(),
                {"content-type": "application/json"},
            )  # fmt: skip
            urllib.request.urlopen(made, timeout=10).close()
            return f"gs://{name}"

        readers = {
            "gcs.service.host": f"http://{address}", "gcs.oauth2.token": "any",
            "gcs.oauth2.token-expires-at": "4102444800000",
        }  # fmt: skip
        yield CloudServer(
            "gs", url, "service_account_key", _account(private), _account(_make_key()[0]), readers, make_bucket
        )


@contextmanager
def run_azure_server(directory: Path) -> Iterator[CloudServer]:
    """Run Azurite until the block ends."""
    directory.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    command = [
        "node", str(_azurite()), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence",
        "--disableTelemetry", "--skipApiVersionCheck", "--silent",
    ]  # fmt: skip
    with ExitStack() as children:
        _launch(children, command, address, directory, AZURITE_ACCOUNTS=f"{ACCOUNT}:{ACCOUNT_KEY}")

        def make_container(name: str) -> str:
            _create_container(address, name)
            return f"abfss://{name}@{ACCOUNT}.dfs.core.windows.net"

        readers = {
            "adls.account-name": ACCOUNT, "adls.account-key": ACCOUNT_KEY,
            "adls.blob-storage-authority": address, "adls.blob-storage-scheme": "http",
            "adls.dfs-storage-authority": address, "adls.dfs-storage-scheme": "http",
        }  # fmt: skip
        wrong = base64.b64encode(b"another key").decode()
        yield CloudServer(
            "abfss", f"http://{address}/{ACCOUNT}", "account_key", ACCOUNT_KEY, wrong, readers, make_container
        )


def _launch(children: ExitStack, command: list[str], address: str, directory: Path, **environment: str) -> None:
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log, env={**os.environ, **environment})
    children.callback(_end, process)
    try:
        go_programs.wait_until_open(process, address, START_TIMEOUT_S)
    except go_programs.Unavailable:
        raise AssertionError((directory / "log").read_text()) from None


def _end(process: subprocess.Popen[Any]) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _make_key() -> tuple[str, str]:
    key = rsa.generate_private_key(65537, 2048)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return private, key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def _account(private_key: str) -> str:
    """Return the document of a service account."""
    names = {"type": "service_account", "client_email": "lading@lading.test", "private_key_id": "1"}
    return json.dumps({**names, "private_key": private_key})


def _fake_gcs() -> Path:
    found = go_programs.find_program(*FAKE_GCS)
    if found is None and os.environ.get("LADING_TEST_FULL") != "1":
        pytest.skip(f"needs {FAKE_GCS[0]}, which is built for minutes: {INSTALLING}")
    try:
        return found or go_programs.program(*FAKE_GCS)
    except go_programs.Unavailable as reason:
        pytest.skip(f"needs {FAKE_GCS[0]}: {reason}")


def _azurite() -> Path:
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("needs Azurite: node and npm are not installed")
    place = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "lading" / AZURITE.replace("@", "-")
    if not (place / "complete").exists() and os.environ.get("LADING_TEST_FULL") != "1":
        pytest.skip(f"needs {AZURITE}, 190 MB of npm's: {INSTALLING}")
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "complete").exists():
            command = ["nice", "npm", "install", "--prefix", str(place), "--no-audit", "--no-fund", AZURITE]
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
            if done.returncode:
                pytest.skip(f"needs {AZURITE}, which npm does not install here: {done.stderr.splitlines()[:1]}")
            (place / "complete").touch()
    return place / "node_modules" / ".bin" / "azurite-blob"


def _create_container(address: str, name: str) -> None:
    """Create it by a signed request (https://learn.microsoft.com/rest/api/storageservices/create-container)."""
    sent = {"x-ms-date": datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"), "x-ms-version": "2023-11-03"}
    path = f"/{ACCOUNT}/{name}"
    words = "PUT" + "\n" * 12 + "".join(f"{key}:{value}\n" for key, value in sent.items())
    words += f"/{ACCOUNT}{path}\nrestype:container"
    signed = hmac.new(base64.b64decode(ACCOUNT_KEY), words.encode(), hashlib.sha256).digest()
    sent |= {"Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(signed).decode()}", "Content-Length": "0"}
    made = urllib.request.Request(f"http://{address}{path}?restype=container", headers=sent, method="PUT")
    urllib.request.urlopen(made, timeout=10).close()
