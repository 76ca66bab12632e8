"""``lading console`` for several people: the process, over TLS, on all addresses; and what it refuses to begin."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from lading import testing
from tests import forked_command
from tests.endpoints.authority import Authority

from .team import COOKIE, PASSWORD, add_users

END_S = 20
CONSOLE = [sys.executable, "-m", "lading.cli.main", "console"]


@contextmanager
def team_console(*words: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run the command until the block ends: its address by the name in the certificate, and the process."""
    with subprocess.Popen(
        [*CONSOLE, *words, "--output", "json", "--with-parent"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.stderr and process.stderr.read()
        address = json.loads(line)["endpoints"]["console"]
        yield f"https://localhost:{address.rpartition(':')[2]}", process
        if process.poll() is None:
            process.terminate()
        process.wait(END_S)


def test_people_log_in_over_tls_on_all_addresses(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    file = tmp_path / "console.toml"
    with testing.broker() as broker:
        add_users(broker).close()
        file.write_text(
            f'from = "{broker.url}"\naddress = "0.0.0.0:0"\n[tls]\nenabled = true\n'
            f'certificate = "{authority.sign("console").name}"\n'
        )
        with team_console("--config", str(file)) as (url, process):
            with httpx.Client(base_url=url, verify=str(authority.file), headers={"origin": url}) as browser:
                assert browser.get("/api/topics").status_code == 401
                answer = browser.post("/login", data={"user": "ann", "password": PASSWORD})
                assert answer.status_code == 303 and COOKIE in browser.cookies
                assert [row["name"] for row in browser.get("/api/topics").json()["topics"]] == ["mine"]
            assert httpx.get(url.replace("https", "http")).status_code == 400
            process.terminate()
            assert process.wait(END_S) == 0
            assert process.stderr is not None
            log = process.stderr.read()
        # the log has the audit lines too
        assert '\\"action\\": \\"log in\\"' in log and PASSWORD not in log
        lines = [json.loads(line) for line in (tmp_path / "console-audit.jsonl").read_text().splitlines()]
        assert [(one["user"], one["from"], one["action"]) for one in lines] == [("ann", "127.0.0.1", "log in")]


def test_options_of_the_command_line_replace_those_of_the_file(tmp_path: Path) -> None:
    certificate = Authority(tmp_path).sign("console")
    file = tmp_path / "console.toml"
    file.write_text('from = "lading://127.0.0.1:1"\naddress = "127.0.0.1:1"\n[tls]\nenabled = true\n')
    words = ["--config", str(file), "--address", "127.0.0.1:0", "--certificate", str(certificate)]
    with team_console(*words, "--read-only", "--state", str(tmp_path)) as (url, _):
        assert "lading://127.0.0.1:1" in httpx.get(f"{url}/login", verify=False).text


def test_what_is_open_to_all_is_not_begun(broker: testing.BrokerProcess, tmp_path: Path) -> None:
    certificate = Authority(tmp_path).sign("console")
    for words, sentence in (
        (["--address", "0.0.0.0:0"], "--certificate FILE"),
        (["--address", "0.0.0.0:0", "--certificate", str(certificate)], "has no users"),
        (["--certificate", str(certificate)], "has no users"),
        (["--key", str(certificate)], "certificate"),
        (["--certificate", str(tmp_path / "none.pem")], "has no users"),
    ):
        done = forked_command.run([*CONSOLE, "--from", broker.url, "--state", str(tmp_path), *words], timeout=60)
        assert done.returncode != 0 and sentence in done.stderr, words


def test_a_certificate_is_replaced_while_the_console_runs(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    served = tmp_path / "served.pem"
    served.write_bytes(authority.sign("first").read_bytes())
    next_one = authority.sign("second").read_bytes()
    words = ["--from", "lading://127.0.0.1:1", "--address", "127.0.0.1:0", "--certificate", str(served)]
    with team_console(*words, "--state", str(tmp_path)) as (url, process):
        port = int(url.rpartition(":")[2])

        first = ssl.get_server_certificate(("127.0.0.1", port))
        assert first.strip() == cut_certificate(served.read_text())
        # files that cannot be used change nothing
        served.write_text("no certificate")
        (tmp_path / "next.pem").write_bytes(next_one)
        assert process.stderr is not None
        line = next(line for line in process.stderr if "new connections get the old certificate" in line)
        assert "served.pem" in line
        assert ssl.get_server_certificate(("127.0.0.1", port)) == first
        (tmp_path / "next.pem").replace(served)
        next(line for line in process.stderr if "new connections get the certificate that was changed" in line)
        assert ssl.get_server_certificate(("127.0.0.1", port)).strip() == cut_certificate(next_one.decode())


def cut_certificate(text: str) -> str:
    """Return the certificate of a PEM file, without the key after it."""
    end = "-----END CERTIFICATE-----"
    return text.partition(end)[0] + end
