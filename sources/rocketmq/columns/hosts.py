"""Stored hosts as text, formatted once per distinct host."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sources.decoding.spans import Flags, Ints
from sources.rocketmq.format.hosts import Host
from sources.rocketmq.format.layout import IPV4_HOST_BYTES, IPV6_HOST_BYTES


def host_column(view: memoryview, at: Ints, is_ipv6: Flags, differs: Flags) -> pa.Array:
    """Return the hosts stored at the indexes `at` of `view` as text; with `is_ipv6` they take 20 bytes instead of 8.

    Only hosts that differ from the one before are looked at: usually a log has one store host.
    """
    firsts = np.flatnonzero(differs)
    ends = at[firsts] + np.where(is_ipv6[firsts], IPV6_HOST_BYTES, IPV4_HOST_BYTES)
    numbers: dict[bytes, int] = {}  # in order of first appearance
    spans = zip(at[firsts].tolist(), ends.tolist(), strict=True)
    of_firsts = [numbers.setdefault(bytes(view[start:end]), len(numbers)) for start, end in spans]
    texts = pa.array([str(Host.unpack(host)) for host in numbers], pa.string())
    return texts.take(pa.array(np.array(of_firsts)[np.cumsum(differs) - 1]))
