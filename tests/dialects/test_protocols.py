"""The rows of the protocols: each number, name and path in them means something that exists, and means it once."""

from __future__ import annotations

from dataclasses import fields
from pkgutil import resolve_name

import pytest

from lading.dialects import registry
from lading.dialects.protocols import DIALECTS, ENDPOINTS, PROTOCOLS, SCHEMES, VISIBILITY, explain_invisible
from lading.model.protocol import KIND_MAX, Capabilities, HeaderForm, Protocol
from lading.settings.settings import EndpointSettings

FLAGS = [field.name for field in fields(Capabilities) if field.type == "bool"]

by_name = pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda one: one.name)


def test_names_are_those_that_positions_and_groups_are_stored_under() -> None:
    assert [one.name for one in PROTOCOLS] == ["iggy", "kafka", "nsq", "native"]


def test_every_dialect_belongs_to_one_protocol() -> None:
    codes = [spec.code for one in PROTOCOLS for spec in one.dialects]
    assert sorted(codes) == sorted(DIALECTS) == [1, 2, 3, 4, 5, 6]
    assert len({spec.name for spec in DIALECTS.values()}) == len(codes)
    assert len(set(codes)) == len(codes)


def test_endpoints_are_the_tables_of_the_settings() -> None:
    assert list(ENDPOINTS) == list(EndpointSettings.model_fields)


@by_name
def test_what_a_row_names_can_be_loaded(protocol: Protocol) -> None:
    for spec in protocol.endpoints:
        assert callable(resolve_name(spec.factory))
    for scheme in protocol.schemes.values():
        assert callable(resolve_name(scheme.transport))
    for code, name, _ in protocol.dialects:
        assert (registry.dialect(code).code, registry.dialect(code).name) == (code, name)


def test_the_port_of_a_scheme_is_where_an_endpoint_of_its_protocol_listens() -> None:
    ports = {
        one.name: {getattr(EndpointSettings(), spec.name).address.port for spec in one.endpoints} for one in PROTOCOLS
    }
    for one in PROTOCOLS:
        for scheme in one.schemes.values():
            assert scheme.port is None or scheme.port in ports[one.name]


def test_schemes_and_rules_are_told_once() -> None:
    assert len(SCHEMES) == sum(len(one.schemes) for one in PROTOCOLS) == 7
    assert len({rule.name for rule in VISIBILITY}) == len(VISIBILITY)


@by_name
def test_every_protocol_says_what_its_readers_get_and_what_a_sender_can_give(protocol: Protocol) -> None:
    kept = protocol.capabilities
    assert set(kept) >= {"", "sent"}
    for one in kept.values():
        assert one.order or not one.duplicate_keys, "without their order headers of one key cannot be told apart"
        assert 0 <= one.name_bytes_min <= one.name_bytes_max
        assert one.form is None or isinstance(resolve_name(one.form), HeaderForm)
        # a sender can give no more than readers of the same system are shown
        lost = [part for part in FLAGS if getattr(one, part) and not getattr(kept[""], part)]
        assert lost == []


def test_what_only_sums_bound_goes_by_carrier() -> None:
    for one in PROTOCOLS:
        for kept in one.capabilities.values():
            carried = kept.with_carrier()
            assert carried.keeps_shape
            assert (carried.values_sum_max, carried.payload_bytes_max) == (kept.values_sum_max, kept.payload_bytes_max)
            assert carried.name_bytes_min == 0 and carried.kind_max == KIND_MAX and carried.form is None


def test_a_topic_that_a_protocol_cannot_show_is_explained_in_its_words() -> None:
    assert explain_invisible("flights", 1) == {}
    assert list(explain_invisible("flights#ephemeral", 1)) == ["Kafka"]
    assert list(explain_invisible("flüge", 1)) == ["Kafka", "NSQ"]
    assert "1,024 partitions" in explain_invisible("flights", 1025)["NSQ"]
