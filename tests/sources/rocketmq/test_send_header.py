"""The ext fields of a send, against section 6.5 of the RocketMQ notes."""

from __future__ import annotations

import pytest

from sources.rocketmq.wire.remoting import RequestCode
from sources.rocketmq.wire.send_header import SendHeader, decode_send_header, encode_send_header

HEADER = SendHeader(
    producer_group="PG",
    topic="T1",
    queue_id=2,
    sys_flag=4,
    born_timestamp_ms=1795253573458,
    flag=-5,
    properties="KEYS\x01k1\x02",
    reconsume_times=1,
    default_topic="TBW102",
    default_topic_queue_nums=4,
    unit_mode=True,
    max_reconsume_times=16,
    batch=False,
    broker_name="b1",
)
LONG = {
    "producerGroup": "PG",
    "topic": "T1",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "2",
    "sysFlag": "4",
    "bornTimestamp": "1795253573458",
    "flag": "-5",
    "properties": "KEYS\x01k1\x02",
    "reconsumeTimes": "1",
    "unitMode": "true",
    "maxReconsumeTimes": "16",
    "batch": "false",
    "brokerName": "b1",
}
SHORT = dict(zip("abcdefghijklmn", LONG.values(), strict=True))


@pytest.mark.parametrize(
    ("code", "fields"),
    [(RequestCode.SEND_MESSAGE, LONG), (RequestCode.SEND_MESSAGE_V2, SHORT), (RequestCode.SEND_BATCH_MESSAGE, SHORT)],
)
def test_request_10_spells_the_names_out_and_the_others_use_letters(code: RequestCode, fields: dict[str, str]) -> None:
    assert encode_send_header(HEADER, code) == fields
    assert decode_send_header(fields, code) == HEADER


def test_what_is_not_given_is_not_sent_and_gets_its_default() -> None:
    least = SendHeader(producer_group="PG", topic="T1")
    assert {"l", "n"}.isdisjoint(encode_send_header(least, RequestCode.SEND_MESSAGE_V2))
    assert decode_send_header({"a": "PG", "b": "T1", "zz": "?"}, RequestCode.SEND_MESSAGE_V2) == least
