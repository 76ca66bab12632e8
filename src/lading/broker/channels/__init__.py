"""Channels: a topic as a queue whose messages subscribers share, selected by tag and filter."""

from .channel import Channel
from .channels import Channels, ChannelStart
from .filters import HeaderFilter
from .pages import Page
from .statistics import ChannelStatistics
from .subscriber import Delivery, Subscriber

__all__ = ["Channel", "ChannelStart", "ChannelStatistics", "Channels", "Delivery", "HeaderFilter", "Page", "Subscriber"]
