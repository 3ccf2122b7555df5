"""Stored hosts to text and back, once per distinct host."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sources.rocketmq.hosts import Host
from sources.rocketmq.layout import IPV4_HOST_BYTES, IPV6_HOST_BYTES
from sources.spans import Bytes, Flags, Ints, gather


def host_column(view: memoryview, at: Ints, is_ipv6: Flags) -> pa.Array:
    """The hosts stored at the indexes `at` of `view`, as text; `is_ipv6` says which take 20 bytes and not 8."""
    raw = np.frombuffer(view, np.uint8)
    if not is_ipv6.any():
        texts, indices = _distinct(raw, at, IPV4_HOST_BYTES)
    elif is_ipv6.all():
        texts, indices = _distinct(raw, at, IPV6_HOST_BYTES)
    else:
        texts, ipv4_indices = _distinct(raw, at[~is_ipv6], IPV4_HOST_BYTES)
        ipv6_texts, ipv6_indices = _distinct(raw, at[is_ipv6], IPV6_HOST_BYTES)
        indices = np.empty(len(at), np.int64)
        indices[~is_ipv6] = ipv4_indices
        indices[is_ipv6] = ipv6_indices + len(texts)
        texts += ipv6_texts
    return pa.array(texts, pa.string()).take(pa.array(indices))


def _distinct(raw: Bytes, at: Ints, width: int) -> tuple[list[str], Ints]:
    """The distinct hosts as text, and which of them each row has."""
    stored = gather(raw, at, np.dtype((np.void, width)))
    hosts = pa.Array.from_buffers(pa.binary(width), len(at), [None, pa.py_buffer(stored.view(np.uint8))])
    encoded = hosts.dictionary_encode()
    return [str(Host.unpack(host)) for host in encoded.dictionary.to_pylist()], encoded.indices.to_numpy()
