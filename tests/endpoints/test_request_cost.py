"""Requests cost in proportion to their rows, whoever sends them, and never hold up the loop.

Ten times the rows may cost twelve times the time and memory; no pass of the loop lasts above 20 ms. What is measured is
in ``repeated_parts.py``, how in ``request_cost.py``. Add a part there, not here.
"""

from __future__ import annotations

import gc
import itertools
import os
import random
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, Protocol

import pytest
from websockets.frames import Opcode

from lading.dialects.iggy.classic.releases import RELEASES
from lading.dialects.iggy.current.operations import READS, WRITES
from lading.dialects.kafka.versions import SERVED
from lading.dialects.nsq import commands as nsq
from lading.endpoints.base.inbox import BUFFER_BYTES
from lading.endpoints.nsq.lookupd import tcp as lookup_tcp
from lading.kernels import engine
from tests import case_turns
from tests.endpoints import http_parts, repeated_parts
from tests.endpoints.every_request import IGGY_LOGINS
from tests.endpoints.repeated_parts import (
    KAFKA_WITHOUT_ROWS,
    LOGINS,
    OPCODES,
    WAITING,
    RepeatedPart,
    Waiting,
    alter_scram,
    current_parts,
    iggy_parts,
    kafka_parts,
    nsq_parts,
    nsqlookupd_parts,
    produce_one,
    quic_parts,
    wait_for_kafka_fetches,
    websocket_parts,
)
from tests.endpoints.request_cost import Client, Cost, World, best, cut_pieces, opened_world, traced_lines
from tests.endpoints.test_nothing_leaks import list_routes
from tests.house.scripted import ScriptedHttpConnection

ROLES: Final = ("stranger", "ann", "root")
"""A client that has not logged in, a user without rights, and an administrator."""
RATIO_MAX: Final = 12
"""For ten times the rows."""
DOUBLINGS: Final = 16
"""Tables of names double: with so many times the rows they are as full as before, with ten times they are not."""
PROCESS_TABLE_BYTES_MAX: Final = 4 << 20
"""A table of the process itself, such as that of interned names (3.8 MB), doubles once, and not when traced again."""
NOISE_S, NOISE_BYTES = 0.010, 64 << 10
"""What does not depend on rows: that a longer request goes to a worker, or a buffer grows."""
PASS_S_MAX: Final = 0.020
HELD_RATIO_MAX: Final = 3
"""A buffer that doubles has at most two bytes for each that arrived, and the one before has one while it is copied."""
ATTEMPTS: Final = 4
"""Of several the least counts: a busy machine makes a measurement larger, never smaller."""
SIZES, SIZES_FULL = (300, 3_000), (1_000, 10_000, 100_000)
CHEAP_S: Final = 0.1
"""What 10,000 rows take at most of a part that is always measured with 100,000."""
FEASIBLE_S: Final = 1.0
"""What 10,000 requests that leave something behind take at most if 100,000 are measured: a topic each take minutes."""
SETTLED_RATIO_MAX: Final = 11
"""Requests that follow each other are in doubt above it, for ten times as many."""
SETTLED_BYTES_MAX: Final = 4_000
"""What 1,000 more requests leave behind at most: a list of them would take 8,000."""
SAMPLE: Final = 2
SAMPLED_MORE: Final = frozenset({"kafka", "http"})
"""Parts of these protocols in an ordinary run, by role; of the others there is one."""
CLIENT_IN_PROCESS: Final = frozenset({"iggy_quic"})
"""Endpoints whose client keeps its own state, in this process: memory is not measured; ``test_quic_hostile.py`` is."""
SEED: Final = 7
PIECE, PIECES = map(int, os.environ.get("LADING_TEST_PIECE", "1/1").split("/"))
"""A full run takes an hour: with ``LADING_TEST_PIECE=2/9`` it is the second ninth of the parts of each protocol."""

# a cold cache of kernels is filled first
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", autouse=True)
def kernels() -> Iterator[None]:
    """What is measured is what a broker does once its kernels are loaded."""
    for home in engine.list_kernel_modules():
        engine.load(home)
    # each measurement begins with a collection, which would look at all that the process of tests has: half a second
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def measure(
    directory: Path, part: RepeatedPart, role: str, data: bytes, *, has_memory: bool = False, has_growth: bool = False
) -> Cost:
    # nodes have no login: with users there is no nsqlookupd unless the settings open it
    with opened_world(directory, has_users=part.endpoint != "nsqlookupd_tcp") as world:
        if part.endpoint != "kafka":
            # rows of Kafka name a topic each
            world.create_topic()
        # the first request of a kind imports and compiles
        first = log_in(world, part, role)
        with traced_lines() if has_memory else nullcontext():
            world.send(first, authorize(first, part.request(1)))
            world.loop.turn()
        first.close()
        client = log_in(world, part, role)
        # what is kept of it would count as the endpoint's
        client.transport.is_forgetting = True
        data = authorize(client, data)
        send = partial(world.send, client, data, cut_pieces(data))
        cost = world.measure(send, has_memory=has_memory, has_growth=has_growth)
        client.close()
        return cost


def log_in(world: World, part: RepeatedPart, role: str) -> Client:
    client = world.connect(part.endpoint)
    LOGINS[part.login or part.endpoint](client, role)
    client.transport.take()
    return client


def authorize(client: Client, data: bytes) -> bytes:
    return client.authorize(data) if isinstance(client, ScriptedHttpConnection) else data


class MeasureRows(Protocol):
    """Measures so many rows of a part."""

    def __call__(self, rows_count: int, *, is_traced: bool = False, has_growth: bool = False) -> Cost: ...


class TimeFault(NamedTuple):
    """What takes time out of proportion."""

    text: str
    indexes: frozenset[int]
    """Of the sizes that it compares: a busy machine may have slowed down any of them."""


def find_time_faults(costs: Sequence[Cost], sizes: Sequence[int], *, ratio_max: int = RATIO_MAX) -> list[TimeFault]:
    """Return all that takes time out of proportion."""
    faults = []
    for index, ((fewer, less), (more, cost)) in enumerate(itertools.pairwise(zip(sizes, costs, strict=True))):
        if cost.cpu_s > ratio_max * less.cpu_s + NOISE_S:
            text = f"{more} rows take {cost.cpu_s:.4f} s, {fewer} rows {less.cpu_s:.4f} s"
            faults.append(TimeFault(text, frozenset({index, index + 1})))
    for index, (rows_count, cost) in enumerate(zip(sizes, costs, strict=True)):
        if cost.longest_pass_s > PASS_S_MAX:
            text = f"with {rows_count} rows a pass of the loop lasts {cost.longest_pass_s:.4f} s"
            faults.append(TimeFault(text, frozenset({index})))
    return faults


def measure_times(
    measure_size: Callable[[int], Cost], sizes: Sequence[int], *, ratio_max: int = RATIO_MAX
) -> tuple[list[Cost], list[TimeFault]]:
    """Return what each size costs, and what is out of proportion; sizes in doubt are measured again.

    A size that is in proportion is measured once: the largest takes ten times as long as all others.
    """
    costs = [measure_size(index) for index in range(len(sizes))]
    for _ in range(ATTEMPTS - 1):
        if not (faults := find_time_faults(costs, sizes, ratio_max=ratio_max)):
            return costs, []
        for index in sorted(frozenset().union(*(fault.indexes for fault in faults))):
            costs[index] = best([costs[index], measure_size(index)])
    return costs, find_time_faults(costs, sizes, ratio_max=ratio_max)


def needs_largest(measure_rows: MeasureRows, sizes: Sequence[int], costs: Sequence[Cost]) -> bool:
    """Return whether requests that follow each other have to be measured with the most rows too.

    ``costs`` are those of all sizes but the largest, which takes nine tenths of the time and shows two things more:
    work that one pass does for all rows of a request, and a very small part of the time that grows. Of requests on a
    connection a pass has those of one read, and 10,000 are several reads; work that grows with the requests before
    needs something that they leave behind. So all that are cheap are measured, and the others unless they cost the
    same at both sizes and leave nothing. Of a part that takes 35 us a row, 10,000 rows show 0.9 ns for each pair of
    rows, and 100,000 show 0.08 ns: a list that is searched takes 10.
    """
    if costs[-1].cpu_s <= CHEAP_S:
        return True
    left = [measure_rows(rows_count, is_traced=True).peak_bytes for rows_count in (sizes[0], 2 * sizes[0])]
    is_settled = (
        not find_time_faults(costs, sizes[:-1], ratio_max=SETTLED_RATIO_MAX)
        and costs[-1].longest_pass_s <= PASS_S_MAX / 2
        and left[1] - left[0] <= SETTLED_BYTES_MAX
    )
    return not is_settled and costs[-1].cpu_s <= FEASIBLE_S


PIPELINED: Final[Mapping[str, tuple[Callable[[int], float], Callable[[int], float], Callable[[int], int], bool]]] = {
    "cheap": (lambda rows: 9e-6 * rows, lambda rows: 0.003, lambda rows: 40_000, True),
    "the same for each": (lambda rows: 35e-6 * rows, lambda rows: 0.005, lambda rows: 40_000 + rows % 7, False),
    "a scan of those before": (
        lambda rows: 35e-6 * rows + 2e-9 * rows**2, lambda rows: 0.005, lambda rows: 40_000, True
    ),
    "a list of those before": (lambda rows: 35e-6 * rows, lambda rows: 0.005, lambda rows: 40_000 + 8 * rows, True),
    "a longer pass": (lambda rows: 35e-6 * rows, lambda rows: 1.1e-6 * rows, lambda rows: 40_000, True),
    "a topic each": (lambda rows: 1e-3 * rows, lambda rows: 0.005, lambda rows: 40_000 + 2_000 * rows, False),
}  # fmt: skip
"""What so many requests take: seconds, the longest pass, memory; and whether the most are measured."""


@pytest.mark.parametrize("name", PIPELINED)
def test_requests_that_leave_nothing_are_not_sent_by_the_hundred_thousand(name: str) -> None:
    take_s, pass_s, take_bytes, is_needed = PIPELINED[name]

    def measure_rows(rows_count: int, *, is_traced: bool = False, has_growth: bool = False) -> Cost:
        return Cost(take_s(rows_count), pass_s(rows_count), take_bytes(rows_count) if is_traced else 0)

    costs = [measure_rows(rows_count) for rows_count in SIZES_FULL[:-1]]
    assert needs_largest(measure_rows, SIZES_FULL, costs) is is_needed


class MemoryFigures(NamedTuple):
    """What was measured of the memory of a part."""

    peaks: list[int]
    """By size, as far as they were traced."""
    fault: str | None


def measure_memory(
    measure_traced: Callable[[int], Cost], costs: Sequence[Cost], sizes: Sequence[int], lengths: Sequence[int]
) -> MemoryFigures:
    """Trace the memory of each size as far as the growth of the process leaves it open; ``costs`` have that growth.

    What ``ReceiveBudget`` has counted is bounded there, and grows in steps: it does not have to be in proportion.
    More rows never take less memory than fewer: if the largest size is within the bound of a smaller one, all are.
    """
    largest = costs[-1]
    if largest.held_bytes > HELD_RATIO_MAX * lengths[-1] + BUFFER_BYTES:
        return MemoryFigures([], f"{lengths[-1]} bytes that arrive hold {largest.held_bytes} bytes")
    peaks: list[int] = []
    for index, rows_count in enumerate(sizes):
        cost = measure_traced(rows_count)
        is_too_much = bool(peaks) and cost.peak_bytes > find_bytes_max(peaks[-1], cost)
        if is_too_much:
            again = measure_traced(rows_count)
            if again.peak_bytes < cost.peak_bytes <= again.peak_bytes + PROCESS_TABLE_BYTES_MAX:
                cost = again
            is_too_much = cost.peak_bytes > find_bytes_max(peaks[-1], cost)
        if is_too_much and not is_in_proportion_of_tables(measure_traced, rows_count, peaks[-1], cost):
            fault = f"{rows_count} rows take {cost.peak_bytes} bytes, {sizes[index - 1]} rows {peaks[-1]} bytes"
            return MemoryFigures([*peaks, cost.peak_bytes], fault)
        peaks.append(cost.peak_bytes)
        if largest.grown_bytes is not None and largest.grown_bytes <= find_bytes_max(peaks[-1], largest):
            break
    return MemoryFigures(peaks, None)


def is_in_proportion_of_tables(
    measure_traced: Callable[[int], Cost], rows_count: int, less_bytes: int, more: Cost
) -> bool:
    """Return whether ``more`` is in proportion to a size of which tables are as full as of ``rows_count``.

    10,000 names fill a table of Python to 92 %, 100,000 names and 6,250 names one to 57 %. ``less_bytes`` is what a
    tenth of the rows takes: a sixteenth that takes more than it differs by more than its tables.
    """
    as_full = measure_traced(rows_count // DOUBLINGS)
    if as_full.peak_bytes > less_bytes + NOISE_BYTES:
        return False
    return more.peak_bytes <= find_bytes_max(as_full.peak_bytes, more, times=DOUBLINGS)


def find_bytes_max(less_bytes: int, more: Cost, *, times: int = 10) -> int:
    """Return the most memory that ``times`` as many rows may take if fewer take ``less_bytes``."""
    return RATIO_MAX * times * less_bytes // 10 + NOISE_BYTES + more.held_bytes


MEMORY_BY_ROWS: Final[Mapping[str, tuple[Callable[[int], float], bool]]] = {
    "in proportion": (lambda rows: 400 * rows, True),
    "tables of names": (lambda rows: 100 * rows + 48 * (1 << (3 * rows // 2).bit_length()), True),
    "a little more than in proportion": (lambda rows: 400 * rows**1.1, False),
    "squares": (lambda rows: rows**2, False),
    "most in the middle": (lambda rows: 2_000 * rows if 3_000 < rows < 9_000 or rows > 50_000 else 400 * rows, False),
    "the last rows alone": (lambda rows: 400 * rows + 5_000 * max(rows - 90_000, 0), False),
}
"""What a part with so many rows takes, and whether that is in proportion.

Growth by n^1.25 that takes less than 1 MB with 100,000 rows is not found. Peaks less the peak of one row would show it
down to 0.2 MB (12 times are allowed, 17.8 are taken, and ``NOISE_BYTES``), but only if every part were traced with
100,000 rows, as the growth of the process is known to 0.2 MB; a trace takes several times as long as the rows. The most
rows that fit in a request of 100 MB, some 10^7, take 300 MB of such a part, no more than those of a part that takes 30
bytes a row in proportion, which is accepted too.
"""


@pytest.mark.parametrize("name", MEMORY_BY_ROWS)
def test_memory_out_of_proportion_is_found_whatever_sizes_it_shows_at(name: str) -> None:
    take_bytes, is_sound = MEMORY_BY_ROWS[name]

    def trace(rows_count: int) -> Cost:
        return Cost(0.0, 0.0, int(take_bytes(rows_count)))

    costs = [trace(rows_count)._replace(grown_bytes=1 << 40) for rows_count in SIZES_FULL]
    assert (measure_memory(trace, costs, SIZES_FULL, SIZES_FULL).fault is None) is is_sound


@pytest.mark.parametrize(("once_bytes", "is_sound"), [(3_800_000, True), (40_000_000, False)])
def test_memory_that_is_taken_once_is_a_table_or_a_fault(once_bytes: int, is_sound: bool) -> None:
    """Names that are kept for the whole process are not traced a second time, however much they take."""
    known = set[int]()

    def trace(rows_count: int) -> Cost:
        is_first = rows_count == SIZES_FULL[-1] and rows_count not in known
        known.add(rows_count)
        return Cost(0.0, 0.0, 20 * rows_count + (once_bytes if is_first else 0))

    costs = [Cost(0.0, 0.0, grown_bytes=1 << 40) for _ in SIZES_FULL]
    assert (measure_memory(trace, costs, SIZES_FULL, SIZES_FULL).fault is None) is is_sound


@lru_cache(maxsize=len(SIZES_FULL) + 1)
def build_request(part: RepeatedPart, rows_count: int) -> bytes:
    """Return the request of a part: building one takes longer than what is measured."""
    return part.request(rows_count)


def check(directory: Path, part: RepeatedPart, role: str, sizes: Sequence[int], *, has_memory: bool) -> list[str]:
    """Return what is out of proportion with a part in one role."""
    has_memory = has_memory and part.endpoint not in CLIENT_IN_PROCESS
    numbers = itertools.count()

    def measure_rows(rows_count: int, *, is_traced: bool = False, has_growth: bool = False) -> Cost:
        place, data = directory / str(next(numbers)), build_request(part, rows_count)
        return measure(place, part, role, data, has_memory=is_traced, has_growth=has_growth)

    def measure_sizes(sizes: Sequence[int], ratio_max: int) -> list[Cost]:
        def measure_time(index: int) -> Cost:
            # the largest shows in the same run how far the process grows. New pages take up to a third of its time, so
            # that the one it is compared with gets new pages too
            return measure_rows(sizes[index], has_growth=has_memory and index >= len(sizes) - 2)

        return measure_times(measure_time, sizes, ratio_max=ratio_max)[0]

    costs: list[Cost] = []
    if part.is_pipelined and len(sizes) > 2:
        costs = measure_sizes(sizes[:-1], SETTLED_RATIO_MAX)
        if needs_largest(measure_rows, sizes, costs):
            costs = []
        else:
            sizes = sizes[:-1]
    costs = costs or measure_sizes(sizes, RATIO_MAX)
    lengths = [len(build_request(part, rows_count)) for rows_count in sizes]
    faults: list[str | None] = [fault.text for fault in find_time_faults(costs, sizes)]
    figures = [
        f"{rows_count} rows {cost.cpu_s:.4f} s, longest pass {cost.longest_pass_s:.4f} s"
        for rows_count, cost in zip(sizes, costs, strict=True)
    ]
    if has_memory:
        # memory is the same each time
        memory = measure_memory(partial(measure_rows, is_traced=True), costs, sizes, lengths)
        faults.append(memory.fault)
        figures += [f"{size} rows {peak} bytes" for size, peak in zip(sizes, memory.peaks, strict=False)]
        figures += [f"grown {costs[-1].grown_bytes} bytes, held {costs[-1].held_bytes} bytes"]
    print(f"{part.name} by {role}: {', '.join(figures)}", flush=True)
    return [f"{part.name} by {role}: {fault}" for fault in faults if fault is not None]


def check_all(directory: Path, cases: Iterable[tuple[RepeatedPart, str]], sizes: Sequence[int]) -> None:
    faults = []
    for part, role in cases:
        with TemporaryDirectory(dir=directory) as name:
            found = check(Path(name), part, role, sizes, has_memory=True)
        if found:
            print(*found, sep="\n", flush=True)
        faults += found
    assert not faults, "\n".join(faults)


def test_every_api_of_kafka_has_its_lists_measured_or_has_none() -> None:
    measured = {part.name.split()[1] for part in kafka_parts(is_full=False)}
    assert measured.isdisjoint(KAFKA_WITHOUT_ROWS)
    assert {served.name for served in SERVED.values()} == measured | KAFKA_WITHOUT_ROWS.keys()


@pytest.mark.turns(3, part=1)
def test_a_user_without_rights_is_refused_many_rows_in_proportion(tmp_path: Path) -> None:
    # refused rows were looked up in a list of them: 100,000 stopped the broker
    parts = [part for part in kafka_parts(is_full=False) if part.name == "Kafka FindCoordinator 6 coordinator_keys"]
    check_all(tmp_path, [(part, "ann") for part in parts], SIZES)


@pytest.mark.turns(3, part=2)
def test_scram_credentials_are_described_and_changed_in_proportion(tmp_path: Path, full: bool) -> None:
    """Each name was looked for in the whole request, in one turn; each user was a file of all users."""
    parts = [part for part in kafka_parts(is_full=False) if part.name.split()[1] == "DescribeUserScramCredentials"]
    cases = [(part, "ann") for part in parts]
    cases += [(RepeatedPart("Kafka AlterUserScramCredentials", "kafka", alter_scram), role) for role in ("ann", "root")]
    check_all(tmp_path, case_turns.choose_part(cases, 3), (600, 6_000) if full else SIZES)


@pytest.mark.turns(2, part=1)
def test_one_message_that_wakes_16_000_fetches_keeps_no_pass(tmp_path: Path) -> None:
    """Others waited for 4.7 s: 125 clients with as many fetches each as a connection may have under way."""
    fetches_count = 125 * 128
    passes_s = []
    for number in range(ATTEMPTS):
        with opened_world(tmp_path / str(number)) as world:
            clients = wait_for_kafka_fetches(world, fetches_count, 128)
            producer = world.connect("kafka")
            LOGINS["kafka"](producer, "root")
            passes_s.append(world.measure(partial(world.send, producer, produce_one())).longest_pass_s)
            # each has all its responses, of the one message
            assert {client.transport.take().count(b"to many") for client in clients} == {128}
        if passes_s[-1] < PASS_S_MAX:
            return
    raise AssertionError(passes_s)


@pytest.mark.turns(2)
@pytest.mark.parametrize("waiting", WAITING, ids=lambda waiting: waiting.name)
def test_requests_that_wait_end_in_proportion(tmp_path: Path, waiting: Waiting, full: bool) -> None:
    sizes = SIZES_FULL if full else SIZES
    numbers = itertools.count()

    def measure_size(index: int) -> Cost:
        with opened_world(tmp_path / str(next(numbers))) as world:
            return world.measure(waiting.prepare(world, sizes[index]))

    assert measure_times(measure_size, sizes)[1] == [], waiting.name


def test_connections_that_leave_in_one_pass_end_their_requests_later(tmp_path: Path) -> None:
    """All that leave together are lost in one pass: a loss makes no list of its requests there."""
    peaks: list[int] = []
    for requests_each in (10, 200):
        with opened_world(tmp_path / f"{requests_each}") as world:
            clients = wait_for_kafka_fetches(world, 3 * requests_each, requests_each)
            # the first connection's requests begin to end at once
            clients.pop().close()
            tracemalloc.start()
            clients.pop().close()
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            world.loop.turn()
            clients.pop().close()
    assert peaks[1] < peaks[0] + 2_000


def test_every_command_of_nsqd_and_of_iggy_is_measured() -> None:
    assert {part.name.split()[1] for part in nsq_parts()} >= {command.decode() for command in nsq.COMMANDS}
    for release in RELEASES:
        named = {part.name.split()[2] for part in iggy_parts(is_full=True) if part.name.split()[1] == release.name}
        # a connection logs in once, and what comes behind a wrong login is refused
        assert named == {row.name for row in release.commands.rows if row.code not in IGGY_LOGINS}


def test_every_operation_of_current_iggy_is_measured() -> None:
    named = {part.name.split()[2] for part in current_parts(is_full=True)}
    # a connection logs in once, and a poll that is cancelled has no response
    assert named >= {row.name for row in (*READS.values(), *WRITES.values())} - {"register", "cancel_deferred_request"}


def test_every_command_of_nsqlookupd_is_measured() -> None:
    assert {part.name.split()[1] for part in nsqlookupd_parts()} >= {verb.decode() for verb in lookup_tcp._COMMANDS}


def test_every_kind_of_frame_of_a_websocket_is_measured() -> None:
    assert set(OPCODES) == set(Opcode)
    for words in OPCODES.values():
        assert any(words in part.name for part in websocket_parts())


def test_every_route_has_its_parts_measured_or_takes_none(tmp_path: Path) -> None:
    routes = list_routes(tmp_path)
    assert routes.keys() == http_parts.ROUTES.keys()
    for endpoint, found in routes.items():
        assert http_parts.ROUTES[endpoint].keys() == {route.name for route in found}, endpoint


@pytest.mark.turns(3, part=0)
def test_documents_are_taken_and_refused_in_proportion(tmp_path: Path) -> None:
    """Each is one that held up the loop: 170,000 wrong numbers for six seconds, a repeated member for minutes."""
    named = {
        "admin transaction.abort wrong transactions": "root",
        "admin rules.change rules to add": "root",
        "admin chunks.append blocks": "root",
        "admin token.create unknown members": "ann",
        "iggy_http user.login members, the last twice": "stranger",
    }
    parts = {part.name: part for part in repeated_parts.http_parts(list_routes(tmp_path / "routes"))}
    faults = [
        check(tmp_path / name.replace(" ", "-"), parts[name], role, SIZES, has_memory=False)
        for name, role in named.items()
    ]
    assert faults == [[]] * len(named)


@pytest.mark.parametrize(("name", "role"), [("nsqd_http mpub lines", "root"), ("HTTP empty lines", "stranger")])
def test_lines_over_http_are_taken_apart_in_proportion(tmp_path: Path, name: str, role: str) -> None:
    """100,000 published lines took 38 ms of the loop and 140 bytes each; as many empty ones took 50 ms in one turn."""
    part = next(part for part in repeated_parts.http_parts(list_routes(tmp_path / "routes")) if part.name == name)
    assert check(tmp_path / "world", part, role, (10_000, 100_000), has_memory=False) == []


AT_ONCE: Final = {
    "Kafka OffsetFetch 10 groups.topics.partition_indexes": 10_000,
    "Kafka AddPartitionsToTxn 3 v3_and_below_topics": 10_000,
    "Kafka DeleteTopics 6 topics": 10_000,
    "Kafka ListGroups 5 states_filter": 100_000,
    "Kafka ListTransactions 2 state_filters": 100_000,
    "Kafka LeaveGroup 5 members": 20_000,
    "Kafka ElectLeaders 2 topic_partitions.partitions": 20_000,
    "Kafka DescribeProducers 0 topics.partition_indexes": 20_000,
}
"""Requests whose rows were worked on, or encoded, in one pass of 22 to 80 ms: how many it had."""
AT_ONCE_FULL: Final = {
    "Kafka AlterClientQuotas 1 entries": 10_000,
    "Kafka DeleteGroups 2 groups_names": 100_000,
    "Kafka AlterClientQuotas 1 entries.entity": 100_000,
    "Kafka SyncGroup 5 assignments": 100_000,
    "Kafka JoinGroup 9 protocols": 100_000,
    "Kafka DeleteAcls 3 filters": 100_000,
    "Kafka DescribeQuorum 2 topics.partitions": 100_000,
}
"""The same of requests that take seconds to build: 20 to 124 ms."""


@pytest.mark.turns(2, part=0)
def test_rows_that_were_worked_on_at_once_have_turns(tmp_path: Path, full: bool) -> None:
    """All rows each time: a busy machine made 4 ms of a third of them, against a third of the bound, 6 ms."""
    parts = {part.name: part for part in kafka_parts(is_full=False)}
    for name, rows_count in (AT_ONCE | AT_ONCE_FULL if full else AT_ONCE).items():
        data = build_request(parts[name], rows_count)
        passes_s = (
            measure(tmp_path / f"{number}-{name[:20]}", parts[name], "root", data).longest_pass_s
            for number in range(ATTEMPTS)
        )
        assert any(longest_s < PASS_S_MAX for longest_s in passes_s), name


PARSED_AT_ONCE: Final = ("Iggy current update_permissions streams", "Iggy current fetch_messages targets")
"""Commands of Iggy whose 10,000 rows were parsed in one pass of 52 and 24 ms, and 100,000 in 0.6 and 0.2 s."""


@pytest.mark.parametrize("name", PARSED_AT_ONCE)
def test_long_commands_of_iggy_are_parsed_by_a_worker(tmp_path: Path, name: str) -> None:
    part = next(part for part in current_parts(is_full=False) if part.name == name)
    data = build_request(part, 20_000)
    passes_s = (measure(tmp_path / str(number), part, "root", data).longest_pass_s for number in range(ATTEMPTS))
    assert any(longest_s < PASS_S_MAX for longest_s in passes_s)


LONG_PASSES: Final = {
    "Kafka Produce 13 topic_data.partition_data": "ann",
    "Kafka ListOffsets 11 topics.partitions": "root",
    "Kafka Metadata 13 topics": "ann",
}
"""Requests of 100,000 rows that kept the loop for 22 to 31 ms after all rows were done in turns."""


def test_the_end_of_a_long_request_keeps_no_pass(tmp_path: Path, full: bool) -> None:
    parts = {part.name: part for part in kafka_parts(is_full=False)}
    named = list(LONG_PASSES.items())[: None if full else 1]
    for name, role in named:
        assert check(tmp_path / name.replace(" ", "-"), parts[name], role, (20_000, 100_000), has_memory=False) == []


Parts = Iterable[RepeatedPart]
PROTOCOLS: Final[dict[str, Callable[[bool, Path], Parts]]] = {
    "kafka": lambda is_full, _: kafka_parts(is_full=is_full),
    "nsq": lambda is_full, _: [*nsq_parts(), *nsqlookupd_parts()],
    "iggy": lambda is_full, _: iggy_parts(is_full=is_full),
    "current iggy": lambda is_full, _: current_parts(is_full=is_full),
    "websocket": lambda is_full, _: websocket_parts(),
    "quic": lambda is_full, _: quic_parts(),
    "http": lambda is_full, path: repeated_parts.http_parts(list_routes(path / "routes")),
}


def list_cases(protocol: str, directory: Path, *, is_full: bool) -> list[tuple[RepeatedPart, str]]:
    """Return each part with each role; the roles of a part follow each other, for its requests are kept."""
    return [(part, role) for part in PROTOCOLS[protocol](is_full, directory) for role in ROLES]


def choose_piece(cases: Sequence[tuple[RepeatedPart, str]]) -> list[tuple[RepeatedPart, str]]:
    """Return the cases of the piece that is asked for: all roles of each of its parts."""
    return [case for index, case in enumerate(cases) if index // len(ROLES) % PIECES == PIECE - 1]


@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.turns(3)
def test_requests_cost_in_proportion_to_their_rows(tmp_path: Path, protocol: str, full: bool) -> None:
    cases = list_cases(protocol, tmp_path, is_full=False)
    if full:
        check_all(tmp_path, choose_piece(cases), SIZES_FULL)
    else:
        count = SAMPLE if protocol in SAMPLED_MORE else 1
        check_all(tmp_path, random.Random(SEED).sample(cases, count), SIZES)


@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("protocol", ("kafka", "iggy", "current iggy"))
def test_older_requests_cost_in_proportion_to_their_rows(tmp_path: Path, protocol: str, full: bool) -> None:
    """First versions, each release, and names that do not exist."""
    newest = list_cases(protocol, tmp_path, is_full=False)
    names = {part.name for part, _ in newest}
    cases = [case for case in list_cases(protocol, tmp_path, is_full=True) if case[0].name not in names]
    if full:
        check_all(tmp_path, choose_piece(leave_out_same_bytes(newest, cases)), SIZES_FULL)
    else:
        check_all(tmp_path, random.Random(SEED).sample(cases, 1), SIZES)


def leave_out_same_bytes(
    known: Sequence[tuple[RepeatedPart, str]], cases: Sequence[tuple[RepeatedPart, str]]
) -> list[tuple[RepeatedPart, str]]:
    """Return the cases that send what none before them sends: nothing else shows which release a client is of."""
    seen = {(part.endpoint, part.login, part.request(2), role) for part, role in known}
    found = []
    for part, role in cases:
        sent = (part.endpoint, part.login, part.request(2), role)
        if sent not in seen:
            seen.add(sent)
            found.append((part, role))
    return found
