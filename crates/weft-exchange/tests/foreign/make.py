"""Makes the files of this directory, by pyarrow: the same rows in the types that others choose.

    python3 make.py       (pip install pyarrow; the files at hand were made by version 26)
"""

import datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet

price = pa.struct([("currency", pa.large_string()), ("amount", pa.int32())])
table = pa.table(
    {
        "tags": pa.array([["a", "b"], [], [None]], pa.large_list(pa.string())),
        "owner": pa.array(["Ada", "Bob", "Ada"], pa.dictionary(pa.int16(), pa.string())),
        "id": pa.array([1, 2, 300], pa.int64()),
        "kind": pa.array(["Buy", "Sell", None], pa.string_view()),
        "large": pa.array([Decimal(0), Decimal(-5), Decimal(10**37)], pa.decimal128(38, 0)),
        "rate": pa.array([0.5, float("inf"), -0.0], pa.float32()),
        "digest": pa.array([b"\x01\x02", b"\x03\x04", b"\x05\x06"], pa.large_binary()),
        "pair": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.uint8())),
        "price": pa.array([{"amount": 1, "currency": "EUR"}, None, {"amount": 3, "currency": "JPY"}], price),
    }
)

with pa.OSFile("plain.arrow", "wb") as sink:
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
parquet.write_table(table, "plain.parquet", row_group_size=2, compression="snappy")
feather.write_feather(table, "compressed.feather", compression="lz4")
parquet.write_table(table, "compressed.parquet", compression="zstd")

dates = pa.table({"id": pa.array([1]), "day": pa.array([datetime.date(2024, 2, 29)])})
parquet.write_table(dates, "dates.parquet", compression="snappy")
