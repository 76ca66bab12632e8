"""The container file names what is there: ports of the settings, a health path that answers, no path of a machine."""

from __future__ import annotations

import re
from pathlib import Path

from lading.settings.settings import Settings

ROOT = Path(__file__).parents[2]
FILE = ROOT / "packaging" / "container" / "Containerfile"


def test_ports_are_those_of_the_settings() -> None:
    (line,) = re.findall(r"^EXPOSE (.*)$", FILE.read_text(), re.MULTILINE)
    exposed = {int(port.partition("/")[0]) for port in line.split()}
    assert {section.address.port for _, section in Settings().endpoints.sections()} == exposed
    (udp,) = (port for port in line.split() if port.endswith("/udp"))
    assert int(udp.partition("/")[0]) == Settings().endpoints.iggy_quic.address.port


def test_the_commands_are_those_of_the_page() -> None:
    text = FILE.read_text()
    page = (ROOT / "docs" / "how-to" / "run-as-a-service.md").read_text()
    for command in re.findall(r"^#     (docker .*)$", text, re.MULTILINE):
        assert command in page
    assert 'ENTRYPOINT ["lading"]' in text and "--data" in text
