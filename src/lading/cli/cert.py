"""``lading cert``: certificates for a development machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from .options import AsOutput, local_path
from .output import Output, json_line, print_note

if TYPE_CHECKING:
    from ..endpoints.encryption.authority import Certificate

AUTHORITY: Final = "ca"
AUTHORITY_DAYS: Final = 3_650
DAYS: Final = 825
"""Longest validity that Apple's clients accept."""
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def cert(
    directory: Annotated[Path, typer.Argument(parser=local_path, metavar="DIR", help="Where the files are put.")],
    servers: Annotated[
        list[str] | None, typer.Option("--server", metavar="NAME", help="Make NAME.pem and NAME.key for a server.")
    ] = None,
    clients: Annotated[
        list[str] | None, typer.Option("--client", metavar="NAME", help="Make NAME.pem and NAME.key for a client.")
    ] = None,
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host", metavar="NAME|ADDRESS", help="Name or address of the servers. Default: loopback and this machine."
        ),
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=AUTHORITY_DAYS, help="How long they are valid.")] = DAYS,
    output: AsOutput = Output.TEXT,
) -> None:
    """Make certificates for a development machine, and the authority that signs them.

    The first call makes ca.pem with its key ca.key, later ones use them. Without --server and --client it makes
    server.pem and client.pem. Keys are on the curve P-256; files are the owner's alone and never overwritten.

    Examples:

        lading cert ./certs

        lading cert ./certs --server broker --host broker.example --host 10.0.0.7 --client alice
    """
    from ..endpoints.encryption.authority import make_authority, make_certificate, own_names
    from ..runtime.private_files import make_private_directory, write_private_file

    if not servers and not clients:
        servers, clients = ["server"], ["client"]
    names = [*(servers or ()), *(clients or ())]
    authority = _find_authority(directory)
    wanted = names if authority is not None else [AUTHORITY, *names]
    _require_free(directory, wanted)
    made: dict[str, Certificate] = {}
    if authority is None:
        authority = made[AUTHORITY] = make_authority("lading development CA", AUTHORITY_DAYS)
    for name in servers or ():
        made[name] = make_certificate(name, hosts or own_names(), days, authority)
    for name in clients or ():
        made[name] = make_certificate(name, (), days, authority)
    make_private_directory(directory)
    files = []
    for name, each in made.items():
        for path, data in ((directory / f"{name}.key", each.key_to_pem()), (directory / f"{name}.pem", each.to_pem())):
            write_private_file(path, data)
            files.append(path)
    if output is Output.JSON:
        json_line({"files": [str(path) for path in files]})
        return
    for path in files:
        print_note(f"made [bold]{path}[/]")
    print_note("ca.key can sign for anyone: leave it on this machine, and use these certificates for development only")


def _find_authority(directory: Path) -> Certificate | None:
    """Return the authority of an earlier call; LocalError if it cannot be used."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    from ..endpoints.encryption.authority import Certificate
    from ..model.errors import LocalError

    shown, key = (directory / f"{AUTHORITY}.{kind}" for kind in ("pem", "key"))
    if not shown.exists() and not key.exists():
        return None
    try:
        certificate = x509.load_pem_x509_certificate(shown.read_bytes())
        private = load_pem_private_key(key.read_bytes(), None)
    except OSError as error:
        raise LocalError(f"authority {error.filename}: {error.strerror}; give a directory with both, or none") from None
    except (ValueError, TypeError) as error:
        raise LocalError(
            f"authority {shown} and {key}: not a certificate and its key as PEM: {error}; use another directory"
        ) from None
    if not isinstance(private, ec.EllipticCurvePrivateKey) or private.public_key() != certificate.public_key():
        raise LocalError(f"authority {shown}: its key {key} does not belong to it; use another directory")
    return Certificate(certificate, private)


def _require_free(directory: Path, names: list[str]) -> None:
    """Raise LocalError for a name that cannot be a file's, is given twice, or whose file exists already."""
    from ..model.errors import LocalError

    for name in names:
        if _FILE_NAME.fullmatch(name) is None or names.count(name) > 1:
            raise LocalError(f"certificate {name!r}: not a name of a file, or not the only one; use letters and digits")
        for path in (directory / f"{name}.pem", directory / f"{name}.key"):
            if path.exists():
                raise LocalError(
                    f"certificate {path}: already exists and is not overwritten; remove it, or choose another name"
                )
