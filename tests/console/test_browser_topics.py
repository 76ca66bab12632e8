"""Topics created and deleted in Chromium."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from lading import testing
from lading.transports.lading.transport import LadingTransport
from lading.transports.topics import UnknownTopic

from .test_browser import browser, console, open_page

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["browser", "console", "open_page"]


def test_a_topic_is_created_and_deleted_by_its_name(
    open_page: Callable[..., Page], broker: testing.BrokerProcess
) -> None:
    page = open_page("/")
    page.get_by_role("button", name="Create…").click()
    page.get_by_label("Name, or stream.name").fill("by-hand")
    page.get_by_label("partitions").fill("4")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("button", name="Delete the topic…").wait_for()
    with closing(LadingTransport(broker.url)) as admin:
        assert len(admin.topic("by-hand").partitions) == 4
        page.get_by_role("button", name="Delete the topic…").click()
        page.get_by_label("Name of the topic").fill("another")
        page.get_by_role("button", name="Delete", exact=True).click()
        page.get_by_text("What was typed is not its name").wait_for()
        page.get_by_role("button", name="Close").click()
        assert len(admin.topic("by-hand").partitions) == 4
        page.get_by_role("button", name="Delete the topic…").click()
        page.get_by_label("Name of the topic").fill("by-hand")
        page.get_by_role("button", name="Delete", exact=True).click()
        page.get_by_text("deleted by-hand").wait_for()
        with pytest.raises(UnknownTopic):
            admin.topic("by-hand")
