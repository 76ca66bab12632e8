"""What a gateway refuses: every kind of durable record that the cluster does not hold, and each with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from lading.kafka_log.refusals import KEPT, REFUSED, GatewayCatalog
from lading.log.catalog_schema import CatalogRecordKind
from lading.log.disk import UnsyncedDisk
from lading.model.errors import LocalError, Reason, Refusal, SettingError
from lading.serve.stores import prepare_store
from lading.settings.settings import Settings

WITH_KAFKA = {"kafka": {"enabled": True}}
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "beyond-one-machine.md"


@pytest.mark.parametrize("kind", CatalogRecordKind)
def test_a_record_is_kept_or_refused_by_name(kind: CatalogRecordKind, tmp_path: Path) -> None:
    catalog = GatewayCatalog(tmp_path / "catalog.sqlite", UnsyncedDisk())
    catalog.is_guarded = True
    try:
        if kind in KEPT:
            with catalog.write(kind):
                pass
        else:
            with pytest.raises(Refusal, match=r"not supported|cannot be changed") as refused:
                catalog.write(kind)
            assert refused.value.reason is Reason.FEATURE_UNAVAILABLE
    finally:
        catalog.close()


def test_the_page_lists_what_is_refused() -> None:
    text = PAGE.read_text()
    assert [name for name in REFUSED if f"| `{name}`" not in text] == []


def test_without_a_store_the_settings_stay() -> None:
    settings = Settings()
    with prepare_store(settings) as fit:
        assert fit(settings) is settings


def test_a_gateway_has_a_directory_that_ends_with_it() -> None:
    with prepare_store(Settings(store="kafka://h:1")) as fit:
        prepared = fit(Settings(store="kafka://h:1"))
        assert prepared.data.is_dir() and not prepared.endpoints.kafka.enabled
        assert prepared.endpoints.iggy_tcp.enabled and prepared.endpoints.admin.enabled
        assert prepared.endpoints.nsqd_tcp.enabled and prepared.endpoints.nsqlookupd_http.enabled
    assert not prepared.data.exists()


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (Settings(store="redis://h:1"), "store 'redis://h:1'"),
        (Settings(store="kafka://h:1", data=Path("d")), "leave out --data or --store"),
        (
            Settings.model_validate({"store": "kafka://h:1", "endpoints": WITH_KAFKA}),
            "cluster itself",
        ),
    ],
)
def test_settings_that_contradict_the_store_are_refused(settings: Settings, word: str) -> None:
    with pytest.raises(SettingError, match=word), prepare_store(settings):
        pass
    assert issubclass(SettingError, LocalError)
