"""Requests, and the signatures that RocketMQ's own class makes of them.

Made by AclClientRPCHook of 4.9.7 and of 5.5.0, which agree. Brokers check ours in tests/peers/test_secured_brokers.py.
"""

from dataclasses import dataclass, field

from sources.rocketmq.wire.security import Credentials


@dataclass(frozen=True)
class Case:
    signature: str
    credentials: Credentials
    ext_fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


WHO = Credentials("logtwin", "secret-of-logtwin")
CASES = {
    "nothing but who asks": Case("2iCeLKb4gz//roXYXnhk8CcYjIE=", WHO),
    "fields in another order": Case(
        "It68+jsdUcAjZsK8cJ1QAdWtp4o=", WHO, {"topic": "orders", "a": "producers", "Zone": "z", "b": ""}
    ),
    "names before and behind AccessKey": Case(
        "n1mSSP3G2AHHvcw2YLp/ZDScjiY=", WHO, {"Acc": "1", "AccessKeys": "2", "Access": "3", "SignaturE": "4"}
    ),
    "a body": Case("SPlaTDyiKb3NO/bf6T8ta/PSuqc=", WHO, {"topic": "orders"}, bytes(range(256))),
    "a security token": Case(
        "nAeshAvAL1s0w093d0tD3FUKWq0=",
        Credentials("logtwin", "secret-of-logtwin", "token 1"),
        {"topic": "orders"},
        b"body",
    ),
    "beyond ASCII": Case(
        "EL6r7Efi39lGZE7Uv7LbrZKDwok=",
        Credentials("Größe", "Schlüssel-鍵-🔑"),
        {"topic": "命令", "é": "ü", "i": "KEYS\x01k\x02"},
        b"\x00",
    ),
    "names that UTF-8 sorts otherwise than Java": Case(
        "z51JvZUc0jOHjHDxsTuMBxPvYvI=", WHO, {"\U0001f511": "surrogates", "\uffee": "one unit"}
    ),
}
