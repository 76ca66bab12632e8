"""Kernels stay in what they are given: their tests pass where every array lies beside a page that nobody may touch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guard_pages import VARIABLE

ROOT = Path(__file__).parents[2]

STRAY = """
import numpy as np
from lading.kernels.memory import base, load8, memcpy, store8
from lading.kernels.signature import BYTES, LONG, NOTHING, OUT_BYTES, OUT_LONGS, kernel

@kernel(LONG(BYTES, LONG))
def read(data, at):
    return load8(base(data), at)

@kernel(NOTHING(OUT_BYTES, LONG))
def write(data, at):
    store8(data, at, 1)

@kernel(NOTHING(OUT_LONGS, LONG))
def index(data, at):
    data[at + data.size] = 1

@kernel(NOTHING(BYTES, OUT_BYTES, LONG))
def copy(source, target, size):
    memcpy(target, 0, source, 0, size)

@kernel(NOTHING(BYTES, LONG))
def write_what_is_read(data, at):
    store8(base(data), at, 1)

@kernel(LONG(LONG, LONG))
def scratch(size, at):
    room = np.empty(size, np.uint8)
    found = load8(base(room), at)
    room[0] = 0
    return found

@kernel(LONG(LONG, LONG))
def scratch_by_address(size, at):
    room = np.empty(size, np.uint8)
    room[0] = 7
    room_data = base(room)
    for step in range(at):
        store8(room_data, step, 1)
    return load8(room_data, at)
"""
"""Kernels that go wherever they are told to."""

CALLS = """
import os, sys
import numpy as np
from lading.kernels import machine_code, signature
from tests import guard_pages

guard_pages.install()
stray = machine_code.link_kernels("stray", signature.compile_kernels("stray"))
for line in sys.stdin:
    child = os.fork()
    if not child:
        digits, longs, table = np.arange(100, 109, dtype=np.uint8), np.arange(9), np.zeros(5000, np.uint8)
        fixed = np.frombuffer(bytes(9), np.uint8)
        eval(line, {"digits": digits, "longs": longs, "table": table, "fixed": fixed, **vars(stray)})
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), line.strip())
"""

INSIDE = (
    "read(digits, 0)", "read(digits, 8)", "write(digits, 0)", "write(digits, 8)", "read(table[5:9], 3)",
    "index(longs, -1)", "index(longs, -9)", "copy(fixed, digits, 9)", "copy(table, table[9:], 0)", "scratch(9, 8)",
)  # fmt: skip
STRAYS = (
    "read(digits, 9)", "read(digits[:4], 4)", "read(digits[:0], 0)", "write(digits, 9)", "write(table, 5000)",
    "index(longs, 0)", "copy(fixed, table, 10)", "copy(table, digits, 10)", "scratch(9, 9)",
    "read(digits, -1)", "read(digits[4:], -1)", "write(digits, -1)", "index(longs, -19)", "scratch(9, -1)",
    "write_what_is_read(digits, 0)", "scratch_by_address(9, 4)",
)  # fmt: skip
"""A byte too far, a byte too early, into what is only read, and of what Numba has freed."""


def test_a_stray_access_ends_the_process(tmp_path: Path) -> None:
    tmp_path.joinpath("stray.py").write_text(STRAY)
    calls = INSIDE + STRAYS
    environment = {**os.environ, "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}{os.pathsep}{tmp_path}"}
    done = subprocess.run(
        [sys.executable, "-c", CALLS], cwd=ROOT, env=environment, input="\n".join(calls),
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    expected = [f"{0 if call in INSIDE else -signal.SIGSEGV} {call}" for call in calls]
    assert done.stdout.splitlines() == expected, done.stderr


TESTS = {
    "tests/chunk": ("test_envelope.py", "test_mend.py"),
    "tests/columns": ("test_exact_types.py", "test_locate.py", "test_repeating.py", "test_typed.py"),
    "tests/dialects": (
        "test_carrier_origin.py", "test_carrier_text.py", "test_iggy_classic_decode.py", "test_iggy_classic_send.py",
        "test_iggy_current.py", "test_iggy_producers.py", "test_iggy_single_send.py", "test_iggy_zero_copy.py",
        "test_kafka_accept.py",
        "test_kafka_carrying.py", "test_kafka_compression.py", "test_kafka_messages.py",
        "test_kafka_single_produce.py", "test_nsq_lent.py", "test_nsq_messages.py",
    ),
    "tests/payloads": ("test_avro.py", "test_payload_columns.py", "test_protobuf.py", "test_walk_json.py"),
    "tests/properties": ("test_entries.py", "test_fuzz_rule.py", "test_fuzz_zero_copy.py"),
    "tests": (
        "broker/test_channels.py", "client/test_header_columns.py", "filter/test_filter.py",
        "log/test_commit.py::test_the_kernel_reports_errors_by_file", "transports/test_checksums.py",
    ),
}  # fmt: skip
"""Tests that together call every kernel, with damaged bytes too."""
LEFT_OUT = (
    "twin", "32_mib", "all_clients_batches", "any_bytes", "any_json", "anything", "bomb_takes", "carriers_made_before",
    "columns_or_malformed", "come_again", "fastavro", "flat_filters", "give_the_same_columns", "hundred_thousand",
    "give_values_or_a_verdict", "json_value_once", "kafka_client", "named_by_its_path",
    "large_batch", "long_values", "mutated", "native_blocks", "origin_times_come_back",
    "other_forms", "real_clients_sent", "says_what_is_wrong", "sent_messages", "test_chunks", "test_stored_messages",
    "test_value", "their_json", "those_of_whole_messages", "three_bits",
)  # fmt: skip
"""Parts of the names of tests that take half a second or more, or run no kernel."""

RUN = """
import sys, pytest
from lading.kernels import engine
from tests import guard_pages

# nothing is too small for kernels
engine.BULK_BYTES = 0
code = pytest.main(sys.argv[1:])
loaded = {home: vars(engine.load(home)) for home in engine.list_kernel_modules()}
every = {f"{home}.{name}" for home, names in loaded.items() for name in names if callable(names[name])}
every -= {f"{home}.__loader__" for home in loaded}
print("not called:", sorted(every - guard_pages.called))
sys.exit(code)
"""


@pytest.mark.turns(2, part=1)
def test_kernels_stay_in_what_they_are_given() -> None:
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "--assert=plain", "-k", f"not ({' or '.join(LEFT_OUT)})"]
    files = [f"{room}/{file}" for room, names in TESTS.items() for file in names]
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", RUN, *options, *files], cwd=ROOT,
        env={**os.environ, VARIABLE: "1"}, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert not done.returncode, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    assert "not called: []" in done.stdout, done.stdout[-2000:]
