"""An error of the disk names what ends it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from lading.broker.core.disk_refusals import refuse_disk_errors
from lading.log.disk import refusal
from lading.model.errors import Refusal


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOENT, "put the deleted part of the data directory back"),
        (errno.EACCES, "check the rights on the data directory"),
        (errno.EROFS, "mount the disk writable"),
        (errno.ENOSPC, "free some space on the disk"),
        (errno.EMFILE, "raise the limit of open files"),
        (errno.EIO, "check the disk"),
    ],
)
def test_a_refused_change_names_what_ends_it(number: int, remedy: str) -> None:
    text = os.strerror(number)
    with pytest.raises(Refusal, match=rf"^the table of users cannot be changed on the disk: {text}; {remedy}$"):  # noqa: SIM117
        with refuse_disk_errors("the table of users"):
            raise OSError(number, text)


def test_a_log_whose_files_were_deleted_is_told_to_be_put_back() -> None:
    error = refusal(Path("/data/topics/x/0"), FileNotFoundError(errno.ENOENT, "No such file or directory"), "failed")
    assert str(error).endswith(
        "(No such file or directory); put the deleted part of the data directory back, then start again"
    )
