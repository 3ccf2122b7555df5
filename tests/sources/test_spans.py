import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sources.decoding.columns import cut

TEXT = b"name=value;;n=v tail"
BUFFER = pa.py_buffer(TEXT)


@given(st.lists(st.integers(0, len(TEXT)), max_size=12).map(sorted), st.data())
def test_spans_in_order_are_cut_out(places: list[int], data: st.DataObject) -> None:
    starts, ends = np.array(places[0::2], np.int64)[: len(places) // 2], np.array(places[1::2], np.int64)
    wanted = np.array([data.draw(st.booleans()) for _ in starts], np.bool_)
    spans = [TEXT[start:end] for start, end in zip(starts, ends, strict=True)]
    assert cut(pa.binary(), BUFFER, starts, ends).to_pylist() == spans
    expected = [span if wants else None for span, wants in zip(spans, wanted, strict=True)]
    assert cut(pa.binary(), BUFFER, starts, ends, wanted).to_pylist() == expected
