"""``python packaging/licenses.py [--check]``: the licences of everything that an installation brings, as they say.

With ``--check`` exit 1 if one is unknown, or would bind users of an Apache-2.0 program to more than naming it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution

KNOWN = re.compile(
    r"Apache|\bMIT\b|BSD|\bISC\b|PSF|Python Software|MPL|Mozilla|Zlib|CC0|Unlicense|LLVM|0BSD", re.IGNORECASE
)
BINDING = re.compile(r"\b(A|L)?GPL|General Public License", re.IGNORECASE)
NAME = re.compile(r"[A-Za-z0-9._-]+")


def list_requirements(name: str, known: set[str]) -> Iterator[Distribution]:
    """Yield a distribution and what it requires without extras, each once; what is not installed is passed over."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in known:
        return
    known.add(key)
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return
    yield found
    for requirement in found.requires or ():
        if "extra ==" not in requirement and (match := NAME.match(requirement)):
            yield from list_requirements(match[0], known)


def licence_of(found: Distribution) -> str:
    """Return the licence as the metadata has it: an expression, classifiers, or the first line of a text."""
    expression = found.metadata.get("License-Expression")
    classifiers = [
        line.rpartition("::")[2].strip()
        for line in found.metadata.get_all("Classifier") or ()
        if line.startswith("License ::") and not line.endswith("OSI Approved")
    ]
    text = (found.metadata.get("License") or "").strip().splitlines()
    return expression or ", ".join(classifiers) or (text[0] if text else "")


def main() -> int:
    """Print the list; return the exit code."""
    rows = sorted(
        (found.name, found.version, licence_of(found))
        for found in list_requirements("lading", set())
        if found.name != "lading"
    )
    doubtful = [name for name, _, licence in rows if not KNOWN.search(licence) or BINDING.search(licence)]
    for name, version, licence in rows:
        print(f"{name:28}{version:14}{licence or 'unknown'}{'  <- look' if name in doubtful else ''}")
    return 1 if "--check" in sys.argv[1:] and doubtful else 0


if __name__ == "__main__":
    sys.exit(main())
