"""What a service manager hears of a broker, and the unit that has it listen."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from lading import testing
from lading.model.errors import LocalError
from lading.serve.service_manager import ServiceManager

UNITS = sorted((Path(__file__).parents[2] / "packaging" / "systemd").iterdir())


class Manager:
    """The manager's socket."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "notify"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self.path))
        self._socket.settimeout(20)

    def hear(self) -> list[str]:
        return self._socket.recv(4096).decode().split("\n")

    def hear_until(self, line: str) -> list[str]:
        """All messages up to the first with this line."""
        messages: list[str] = []
        while line not in messages:
            messages += self.hear()
        return messages

    def close(self) -> None:
        self._socket.close()


@pytest.mark.turns(2, part=1)
def test_a_broker_tells_each_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = Manager(tmp_path)
    monkeypatch.setenv("NOTIFY_SOCKET", str(manager.path))
    monkeypatch.setenv("WATCHDOG_USEC", "300000")
    with testing.broker(tmp_path / "data") as broker:
        assert manager.hear() == ["READY=1", "STATUS=serving"]
        assert [manager.hear() for _ in range(3)] == [["WATCHDOG=1"]] * 3
        os.kill(broker.pid, signal.SIGHUP)
        said = manager.hear_until("RELOADING=1")
        assert int(said[-1].removeprefix("MONOTONIC_USEC=")) > 0
        manager.hear_until("READY=1")
        assert broker.stop() == 0
        manager.hear_until("STOPPING=1")
    manager.close()


def test_the_loop_itself_gives_the_signs(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    told = ServiceManager(
        {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "30000", "WATCHDOG_PID": str(os.getpid())}
    )

    async def run() -> None:
        with told.signs_of_life(asyncio.get_running_loop()):
            assert manager.hear() == ["WATCHDOG=1"]
            await asyncio.sleep(0.03)
            assert manager.hear() == ["WATCHDOG=1"]

    asyncio.run(run())
    # who is not asked says nothing: another process, no deadline, no manager
    for environment in (
        {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "30000", "WATCHDOG_PID": "1"},
        {"NOTIFY_SOCKET": str(manager.path)},
        {"WATCHDOG_USEC": "30000"},
    ):
        assert ServiceManager(environment).watchdog_s is None
    ServiceManager({}).tell_ready()
    manager.close()


def test_a_manager_that_is_gone_or_abstract(caplog: pytest.LogCaptureFixture) -> None:
    ServiceManager({"NOTIFY_SOCKET": "/missing/socket"}).tell_stopping()
    assert "cannot send STOPPING=1: No such file" in caplog.text
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as abstract:
        abstract.bind(f"\0lading-test-{os.getpid()}")
        abstract.settimeout(10)
        ServiceManager({"NOTIFY_SOCKET": f"@lading-test-{os.getpid()}"}).tell_ready()
        assert abstract.recv(100) == b"READY=1\nSTATUS=serving"


def _analyze(*arguments: str) -> str:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed (apt-get install systemd)")
    done = subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("given", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_one_and_exposes_little(given: Path, tmp_path: Path) -> None:
    unit = tmp_path / given.name
    unit.write_text(given.read_text().replace("/opt/lading/bin/lading", "/bin/true"))
    assert _analyze("verify", str(unit)) == ""
    # 0 to 10; up to 2 is what systemd calls OK
    _analyze("security", "--offline=true", "--threshold=20", str(unit))


@pytest.mark.turns(3)
@pytest.mark.parametrize(("mode", "is_refused"), [(0o755, False), (0o777, True), (0o1777, True), (0o702, True)])
def test_a_data_directory_that_others_can_write_is_refused(tmp_path: Path, mode: int, is_refused: bool) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(mode)
    if not is_refused:
        with testing.broker(data):
            return
    told = rf"data directory .*data: other users may write it \(mode {mode:04o}\); .*chmod"
    with pytest.raises(LocalError, match=told), testing.broker(data):
        pass


@pytest.mark.turns(2, part=0)
def test_files_of_a_data_directory_are_the_owners_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    settings = {"endpoints.admin.tls.enabled": True}
    with testing.broker(data, settings=settings) as broker:
        host, _, port = broker.endpoints["nsqd_tcp"].rpartition(":")
        with socket.create_connection((host, int(port)), 10) as client:
            client.sendall(b"  V2PUB files\n\x00\x00\x00\x01x")
            assert client.recv(100)
    found = list(data.rglob("*"))
    assert any(path.is_file() for path in found)
    assert [str(path) for path in [data, *found] if path.stat().st_mode & 0o077] == []
