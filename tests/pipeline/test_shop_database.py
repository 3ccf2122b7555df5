"""The demo's database: what it sends is what its rows are."""

from itertools import islice

from pipeline.demo.shop_database import DATABASE, TABLE, ShopDatabase
from sinks.typed.formats.canal import Canal
from sinks.typed.formats.changes import WantedRows


def test_its_events_make_its_rows() -> None:
    shop, read, kept = ShopDatabase(7), Canal(WantedRows(DATABASE, TABLE, ("id",))), dict[bytes, dict[str, bytes]]()
    for event in islice(shop.events(), 2_000):
        for row in read(event):
            if row.empties:
                kept.clear()
            elif row.deletes:
                del kept[bytes(row["id"])]
            else:
                kept[bytes(row["id"])] = {name: bytes(raw) for name, raw in row.items()}
    assert len(kept) == len(shop.rows) > 100
    for values in shop.rows.values():
        made = kept[str(values["id"]).encode()]
        assert made["credit"].decode() == values["credit"]
        assert (made["city"] == b"null") == (values["city"] is None)


def test_the_same_seed_makes_the_same_rows() -> None:
    one, other = ShopDatabase(7), ShopDatabase(7)
    for shop in (one, other):
        for _ in islice(shop.events(), 500):
            pass
    assert one.rows == other.rows
