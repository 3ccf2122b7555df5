"""Stored hosts to text, once per distinct host."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sources.decoding.spans import Flags, Ints
from sources.rocketmq.format.hosts import Host
from sources.rocketmq.format.layout import IPV4_HOST_BYTES, IPV6_HOST_BYTES


def host_column(view: memoryview, at: Ints, is_ipv6: Flags, differs: Flags) -> pa.Array:
    """The hosts stored at the indexes `at` of `view`, as text; `is_ipv6` says which take 20 bytes and not 8.

    Only those are looked at that differ from the one before: a log has one store host as a rule.
    """
    firsts = np.flatnonzero(differs)
    ends = at[firsts] + np.where(is_ipv6[firsts], IPV6_HOST_BYTES, IPV4_HOST_BYTES)
    numbers: dict[bytes, int] = {}  # in the order in which hosts come first
    spans = zip(at[firsts].tolist(), ends.tolist(), strict=True)
    of_firsts = [numbers.setdefault(bytes(view[start:end]), len(numbers)) for start, end in spans]
    texts = pa.array([str(Host.unpack(host)) for host in numbers], pa.string())
    return texts.take(pa.array(np.array(of_firsts)[np.cumsum(differs) - 1]))
