"""The data directory: the directories of topics, with a description of each for readers without a broker.

``DATA/topics/<topic id, 32 hex>/topic.json`` describes a topic; ``DATA/topics/<topic id>/<number>/`` is a partition.
A delete first renames to ``….deleted``, so that a crash leaves either all of it or a name that shows the intent.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..model.checked_document import pack_document
from ..model.errors import CorruptLog
from ..model.lazy_dataclass import lazy_dataclass
from ..model.names import flat_name
from ..runtime.private_files import create_directory, make_private_directory
from .creation import create_logs
from .disk import Disk, RealDisk, UnsyncedDisk, file_size, replace, sync_directory
from .formats import DESCRIPTION as DESCRIPTION_FORMAT
from .formats import GATE
from .found_files import FoundFiles, LogFiles
from .recovery import is_new

TOPICS: Final = "topics"
DESCRIPTION: Final = "topic.json"
DELETED: Final = ".deleted"


@lazy_dataclass(frozen=True, slots=True)
class TopicDescription:
    """The content of ``topic.json``: names, id (16 bytes), partition count, settings."""

    uuid: bytes
    stream: str
    topic: str
    topic_id: int
    partitions: int
    created_us: int
    next_epoch: int
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The flat name."""
        return flat_name(self.stream, self.topic)

    def document(self) -> dict[str, Any]:
        """Return the description as JSON."""
        return {
            "version": DESCRIPTION_FORMAT.written,
            "stream": self.stream,
            "topic": self.topic,
            "name": self.name,
            "id": self.uuid.hex(),
            "topic_id": self.topic_id,
            "partitions": self.partitions,
            "created_us": self.created_us,
            "next_epoch": self.next_epoch,
            "settings": dict(self.settings),
        }


def read_description(directory: Path) -> TopicDescription | None:
    """Return the description in a topic's directory, or None if it is missing. Raises CorruptLog if it is invalid."""
    path = directory / DESCRIPTION
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        document = GATE.parse_known_document(DESCRIPTION_FORMAT, data, path)
    except ValueError as error:
        raise CorruptLog(f"{path} is not a topic description: {error!r}") from None
    return parse_description(document, path)


def parse_description(document: Any, path: Path | str) -> TopicDescription:
    """Return the description in the document of a ``topic.json`` of a known version. Raises CorruptLog if invalid."""
    try:
        return TopicDescription(
            bytes.fromhex(document["id"]),
            document["stream"],
            document["topic"],
            document["topic_id"],
            document["partitions"],
            document["created_us"],
            document["next_epoch"],
            document["settings"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptLog(f"{path} is not a topic description: {error!r}") from None


def read_descriptions(data: Path) -> Iterator[TopicDescription]:
    """Yield every topic of a data directory, in no order; nothing if ``data`` is not one."""
    root = data / TOPICS
    if not root.is_dir():
        return
    for directory in root.iterdir():
        if not directory.name.endswith(DELETED) and (description := read_description(directory)) is not None:
            yield description


def partition_path(data: Path, uuid: bytes, number: int) -> Path:
    """Return the directory of a partition."""
    return data.joinpath(TOPICS, uuid.hex(), str(number))


class DataDirectory:
    """The directories of all topics; every change is atomic under crashes."""

    def __init__(self, data: Path, disk: Disk | None = None, found: FoundFiles | None = None) -> None:
        """Create ``data`` if it is missing; its parent exists. ``disk`` is used for the files of partitions.

        ``found`` are the files that the format gate has just found in it.
        """
        self.data = data
        self._found = found
        self._disk: Disk = disk or RealDisk()
        self._own_disk: Disk = RealDisk() if self._disk.is_durable else UnsyncedDisk()
        """For directories and descriptions."""
        self.root = data / TOPICS
        self._paths: dict[bytes, Path] = {}
        """Directories of topics, kept during a start, which needs each several times."""
        self._unsettled: set[bytes] = set()
        """Topics with partitions whose delete began in this process and has not ended: a start settles all others."""
        make_private_directory(data)
        create_directory(self.root, exist_ok=True)
        sync_directory(self._own_disk, data)

    def path(self, uuid: bytes) -> Path:
        """Return a topic's directory."""
        path = self._paths.get(uuid)
        if path is None:
            path = self.root / uuid.hex()
            if self._found is not None:
                self._paths[uuid] = path
        return path

    def partition(self, uuid: bytes, number: int) -> Path:
        """Return a partition's directory."""
        return partition_path(self.data, uuid, number)

    def list_topic_ids(self) -> set[bytes]:
        """Return the ids of the topics that have a directory."""
        return {bytes.fromhex(name) for name in RealDisk().names(self.root) if _is_topic_id(name)}

    def create(self, uuid: bytes, partitions_count: int) -> None:
        """Create the directory of a new topic with empty logs; on disk on return.

        The caller describes it afterwards, before the catalog lists it and it can be written to: a directory without a
        description is from an interrupted create, one with a description is complete.
        """
        create_directory(self.path(uuid))
        self.add_partitions(uuid, range(partitions_count), 1)
        sync_directory(self._own_disk, self.root)

    def add_partitions(self, uuid: bytes, numbers: range, first_epoch: int) -> None:
        """Create empty logs for these partitions; durable on return. Keeps those of an interrupted call."""
        paths = [self.partition(uuid, number) for number in numbers]
        for path in paths:
            create_directory(path, exist_ok=True)
        create_logs(self._disk, [path for path in paths if is_new(self._disk.names(path))], uuid, first_epoch)
        if paths:
            sync_directory(self._own_disk, self.path(uuid))

    def describe(self, description: TopicDescription) -> None:
        """Replace the description as a whole."""
        content = pack_document(description.document())
        replace(self._own_disk, self.path(description.uuid) / DESCRIPTION, content)

    def mark_deleted(self, uuid: bytes) -> None:
        """Take the first step of a delete: the topic no longer exists for readers, nor after a crash of the process."""
        path = self.path(uuid)
        path.rename(path.with_name(path.name + DELETED))
        self._unsettled.discard(uuid)

    def list_deleted(self) -> list[bytes]:
        """Return the ids of topics whose deletion began."""
        names = (name.removesuffix(DELETED) for name in RealDisk().names(self.root) if name.endswith(DELETED))
        return [bytes.fromhex(name) for name in names if _is_topic_id(name)]

    def empty(self, uuid: bytes) -> None:
        """Take the second step of a delete, durably: free the space; the name that shows the intent remains."""
        sync_directory(self._own_disk, self.root)
        path = self.path(uuid)
        for entry in list(path.with_name(path.name + DELETED).iterdir()):
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def remove(self, uuid: bytes) -> None:
        """Take the last step of a delete."""
        path = self.path(uuid)
        shutil.rmtree(path.with_name(path.name + DELETED))
        sync_directory(self._own_disk, self.root)

    def mark_partitions_deleted(self, uuid: bytes, numbers: range) -> None:
        """Take the first step of deleting partitions; the next start undoes it if the catalog still counts them."""
        self._unsettled.add(uuid)
        for number in numbers:
            path = partition_path(self.data, uuid, number)
            path.rename(path.with_name(path.name + DELETED))
        sync_directory(self._own_disk, self.path(uuid))

    def settle_partitions(self, uuid: bytes, count: int) -> None:
        """Finish or undo a delete of partitions: numbers below ``count`` are restored, others deleted."""
        directory = self.path(uuid)
        marked = [name for name in RealDisk().names(directory) if name.endswith(DELETED)]
        for name in marked:
            number = name.removesuffix(DELETED)
            if number.isdecimal() and int(number) < count:
                (directory / name).rename(directory / number)
            else:
                shutil.rmtree(directory / name)
        # nearly all have no changes for a sync: each start comes here for each topic
        if marked:
            self.forget_found()
            sync_directory(self._own_disk, directory)
        self._unsettled.discard(uuid)

    def is_settled(self, uuid: bytes) -> bool:
        """Return whether no delete of partitions of a running broker's topic began without ending."""
        return uuid not in self._unsettled

    def remove_if_empty(self, uuid: bytes) -> bool:
        """Remove the remains of an interrupted create, recognised by empty log files; return whether there were any."""
        path = self.path(uuid)
        if not path.is_dir() or _holds_bytes(path):
            return False
        shutil.rmtree(path)
        sync_directory(self._own_disk, self.root)
        return True

    # a found list is returned only once: its caller may change it

    def take_files(self, log: Path) -> LogFiles | None:
        """Return the files of a log, in the directory of a partition or below it, as found; None if unknown."""
        found = self._found
        return None if found is None else found.partitions.pop(str(log)[len(str(self.root)) + 1 :], None)

    def take_description(self, uuid: bytes) -> TopicDescription | None:
        """Return the description of a topic, or None if it is missing. Raises CorruptLog if it is invalid."""
        document = None if self._found is None else self._found.descriptions.pop(uuid.hex(), None)
        path = self.path(uuid)
        return read_description(path) if document is None else parse_description(document, f"{path}/{DESCRIPTION}")

    def _take_names(self, uuid: bytes) -> Sequence[str]:
        names = None if self._found is None else self._found.names.pop(uuid.hex(), None)
        return RealDisk().names(self.path(uuid)) if names is None else names

    def forget_found(self) -> None:
        """Forget the found files: the start is complete, and everything may change from now on."""
        self._found = None
        self._paths.clear()

    def exists(self, uuid: bytes) -> bool:
        """Return whether a topic has a directory."""
        return bool(self._found and self._found.names.get(uuid.hex())) or self.path(uuid).is_dir()

    def has_log_below(self, uuid: bytes, number: int, name: str) -> bool:
        """Return whether the directory of a partition has another of this name, with a log of its own."""
        if self._found is None:
            return (self.partition(uuid, number) / name).is_dir()
        return f"{uuid.hex()}/{number}/{name}" in self._found.partitions

    def partitions(self, uuid: bytes) -> set[int]:
        """Return the numbers of the partitions that have a directory."""
        return self.list_partitions(uuid)[0]

    def list_partitions(self, uuid: bytes) -> tuple[set[int], bool]:
        """Return the numbers of partitions that have a directory, and whether a delete of others was interrupted."""
        names = self._take_names(uuid)
        there = {int(name) for name in names if name.isdecimal() and str(int(name)) == name}
        return there, any(name.endswith(DELETED) for name in names)

    def partitions_marked_deleted(self, uuid: bytes) -> set[int]:
        """Return the numbers of the partitions whose delete began."""
        names = (name.removesuffix(DELETED) for name in RealDisk().names(self.path(uuid)) if name.endswith(DELETED))
        return {int(name) for name in names if name.isdecimal()}

    def empty_partitions(self, uuid: bytes, count: int) -> list[int]:
        """Return those of the first ``count`` partitions whose directory has no files."""
        home, topic = self.path(uuid), uuid.hex()

        def is_empty(number: int) -> bool:
            files = None if self._found is None else self._found.partitions.get(f"{topic}/{number}")
            return not (self._disk.names(home / str(number)) if files is None else files.names)

        return [number for number in range(count) if is_empty(number)]

    def holds_messages(self, uuid: bytes, number: int) -> bool:
        """Return whether any message was ever written to a partition."""
        path = self.partition(uuid, number)
        return any(file_size(self._disk, path / name) for name in self._disk.names(path) if name.endswith(".log"))


def _holds_bytes(directory: Path) -> bool:
    return any(file.stat().st_size for file in directory.rglob("*.log"))


def _is_topic_id(name: str) -> bool:
    try:
        return len(name) == 32 and len(bytes.fromhex(name)) == 16
    except ValueError:
        return False
