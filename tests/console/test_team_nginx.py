"""The console behind a real nginx, with the settings of the documentation: logins at nginx, and visitors that lie."""

from __future__ import annotations

import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from lading import testing
from lading.testing.held_ports import PortHolder
from tests.endpoints.authority import Authority
from tests.interop.go_programs import wait_until_open

from .team import PASSWORD, add_users
from .test_team_command import team_console

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "console-behind-a-proxy.md"
SECRET = "a-secret-of-the-proxy-and-the-console"
START_S = 20
Proxied = tuple[str, str, Path]


def write_configuration(place: Path, port: int, console_port: int, certificate: Path) -> Path:
    """Write the server of the documentation with ports, files and the secret of this test."""
    (block,) = re.findall(r"## nginx\n\n((?:    .*\n|\n)+)", PAGE.read_text())
    for old, new in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("127.0.0.1:7443", f"127.0.0.1:{console_port}"),
        ("console.example", "localhost"),
        ("server.pem", str(certificate)),
        ("server.key", str(certificate)),
        ("htpasswd", str(place / "htpasswd")),
        ('"…"', f'"{SECRET}"'),
    ):
        assert old in block
        block = block.replace(old, new)
    names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{name}_temp_path {place / name};\n" for name in names)
    file = place / "nginx.conf"
    file.write_text(
        f"daemon off; pid {place / 'nginx.pid'}; error_log {place / 'error.log'};\nuser root;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{paths}{block}}}\n"
    )
    (place / "htpasswd").write_text(f"ann:{{PLAIN}}{PASSWORD}\nroot:{{PLAIN}}{PASSWORD}\n")
    return file


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    """The address of nginx, that of the console behind it, and the file of the authority."""
    if NGINX is None:
        pytest.skip("there is no nginx: apt-get install nginx-light")
    place = tmp_path_factory.mktemp("nginx")
    authority = Authority(place)
    with PortHolder() as ports, testing.broker() as broker:
        # nginx sets SO_REUSEADDR: it listens beside the socket that keeps the port until then
        port = int(ports.hold().rpartition(":")[2])
        with closing(add_users(broker)) as root:
            (place / "console.token").write_text(root.add_token("root", "console"))
        (place / "proxy.secret").write_text(SECRET)
        file = place / "console.toml"
        file.write_text(
            f'from = "{broker.url}?token_file={place / "console.token"}"\naddress = "127.0.0.1:0"\n'
            f'public_url = "https://localhost:{port}"\n'
            'proxy = { addresses = "127.0.0.1", secret_file = "proxy.secret", user_header = "X-Forwarded-User" }\n'
        )
        with team_console("--config", str(file)) as (address, _):
            console_port = int(address.rpartition(":")[2])
            configuration = write_configuration(place, port, console_port, authority.sign("nginx"))
            with subprocess.Popen([NGINX, "-p", str(place), "-c", str(configuration)]) as nginx:
                wait_until_open(nginx, f"127.0.0.1:{port}")
                yield f"https://localhost:{port}", f"http://127.0.0.1:{console_port}", authority.file
                nginx.terminate()
                nginx.wait(START_S)


def browser(proxied: Proxied, user: str, password: str = PASSWORD) -> httpx.Client:
    trusted = ssl.create_default_context(cafile=str(proxied[2]))
    return httpx.Client(base_url=proxied[0], verify=trusted, auth=(user, password), headers={"origin": proxied[0]})


def test_the_user_of_nginx_has_its_rights_at_the_broker(proxied: Proxied) -> None:
    with browser(proxied, "ann") as ann, browser(proxied, "root") as root:
        assert "<title>Lading</title>" in ann.get("/topic?topic=mine").text
        assert ann.get("/api/about").json()["user"] == "ann"
        assert [row["name"] for row in ann.get("/api/topics").json()["topics"]] == ["mine"]
        assert ann.post("/api/topic/delete", json={"topic": "mine"}).status_code in (400, 403)
        assert root.post("/api/topic/create", json={"topic": "made"}).status_code == 200
        # an http:// page of the same name, and another site's
        for origin in ("http://localhost", "https://evil.test"):
            answer = root.post("/api/topic/create", json={"topic": "lie"}, headers={"origin": origin})
            assert answer.status_code == 403, origin


def test_a_visitor_cannot_name_another_user(proxied: Proxied) -> None:
    with browser(proxied, "ann") as ann:
        for lie in ("X-Forwarded-User", "x-forwarded-user", "X_Forwarded_User", "Lading-On-Behalf-Of"):
            assert ann.get("/api/about", headers={lie: "root"}).json()["user"] == "ann", lie
        twice = [("X-Forwarded-User", "root"), ("X-Forwarded-User", "root")]
        assert ann.get("/api/about", headers=twice).json()["user"] == "ann"
    with browser(proxied, "ann", "wrong") as stranger:
        assert stranger.get("/api/about").status_code == 401


def test_a_visitor_that_goes_around_nginx_is_refused(proxied: Proxied) -> None:
    for headers in ({}, {"x-lading-proxy-secret": "wrong"}):
        answer = httpx.get(f"{proxied[1]}/api/about", headers={"x-forwarded-user": "root", **headers})
        assert (answer.status_code, "secret" in answer.json()["error"]) == (403, True)


def test_a_live_tail_passes_through_nginx_as_it_comes(proxied: Proxied) -> None:
    with browser(proxied, "ann") as ann, ann.stream("GET", "/api/tail?topic=mine", timeout=20) as tail:
        lines = tail.iter_lines()
        assert '"at"' in next(lines)
        sent = {"topic": "mine", "message": {"payload": "through nginx"}}
        with browser(proxied, "ann") as other:
            assert other.post("/api/send", json=sent).json()["sent"] == 1
        assert "through nginx" in next(line for line in lines if "through nginx" in line)
