"""What a waterfall shows: the request, every segment, the silence with its length, the ACK that ended it."""

from dataclasses import replace

import pytest
from report_records import AFTER, RTT, an_exchange

from netlab.diagnosis import Exchange, LabelledSegment, Stall
from netlab.report.rows import MOST, Kind, rows
from netlab.segments import Direction
from netlab.units import ms, us


def long_exchange(segments: int, flights: int, *, stalls: bool) -> Exchange:
    """An answer of `segments` full ones in `flights` flights, with or without a stall between them."""
    base, found, stops = an_exchange(0, stalled=False), [], []
    each = segments // flights
    for place in range(segments):
        flight = min(place // each, flights - 1)
        at = base.sent_at + ms(1) + flight * RTT + us(10) * (place % each)
        found.append(LabelledSegment(
            frame=100 + place, at=at, direction=Direction.TO_CLIENT, length=1448, push=False, labels=("Data",),
            flight=flight,
        ))  # fmt: skip
        if stalls and place and flight != found[-2].flight:
            stops.append(Stall(
                after_frame=99 + place, resume_frame=100 + place, ack_frame=None, started_at=found[-2].at, ended_at=at,
                outstanding_segments=each, outstanding_bytes=None,
            ))  # fmt: skip
    return replace(base, segments=(base.segments[0], *found), stalls=tuple(stops))


def test_a_stall_stands_between_what_was_sent_and_what_waited():
    found = rows(an_exchange(0))
    assert [row.kind for row in found] == [
        Kind.REQUEST, *[Kind.SEGMENTS] * 8, Kind.SILENCE, Kind.ACK, Kind.SEGMENTS,
    ]  # fmt: skip
    assert found[0].text == "request: Query + Data, 97 B"
    assert [row.text for row in found[1:4]] == ["1  Data  28 B", "2  Data  36 B", "3  ProfileInfo  8 B"]
    assert found[5].text == "5  ProfileEvents  1,448 B"
    assert (found[9].text, found[9].detail) == ("nothing for 31.7 ms = 0.99 RTT", "8 segments unacknowledged")
    assert found[10].text == "the client's ACK (frame 19)"
    assert found[11].text == "9  EndOfStream  1 B"
    assert found[10].start < found[11].start and found[9].end == found[11].start


def test_a_healthy_answer_has_no_silence():
    found = rows(an_exchange(0, AFTER, stalled=False))
    assert [row.kind for row in found] == [Kind.REQUEST, *[Kind.SEGMENTS] * 4]
    assert found[-1].text == "4  ProfileEvents + Data + Progress + EndOfStream  628 B"


def test_without_an_rtt_or_a_window_the_silence_says_only_its_length():
    exchange = an_exchange(0)
    bare = replace(exchange, rtt=None, stalls=(replace(exchange.stalls[0], outstanding_segments=None, ack_frame=None),))
    found = rows(bare)
    assert [(row.text, row.detail) for row in found if row.kind is Kind.SILENCE] == [("nothing for 31.7 ms", "")]
    assert all(row.kind is not Kind.ACK for row in found)


def test_a_retransmission_says_so():
    exchange = an_exchange(0, AFTER, stalled=False)
    again = replace(exchange.segments[-1], retransmission=True)
    assert rows(replace(exchange, segments=(*exchange.segments[:-1], again)))[-1].text.endswith("628 B, sent again")


@pytest.mark.parametrize("stalls", [False, True])
@pytest.mark.parametrize(("segments", "flights"), [(23, 1), (40, 4), (500, 8), (5000, 20), (6000, 300)])
def test_a_long_answer_fits_and_loses_no_segment(segments: int, flights: int, stalls: bool):
    found = rows(long_exchange(segments, flights, stalls=stalls))
    assert len(found) <= MOST
    left_out = sum(row.segments for row in found if row.kind is Kind.LEFT_OUT)
    assert sum(row.segments for row in found if row.kind is Kind.SEGMENTS) + left_out == segments
    total = sum(row.bytes for row in found if row.kind in (Kind.SEGMENTS, Kind.LEFT_OUT))
    assert total == segments * 1448
    assert any(row.kind is Kind.SEGMENTS and f"–{row.first + row.segments - 1}" in row.text for row in found)


def test_flights_are_joined_before_anything_is_left_out():
    found = rows(long_exchange(500, 8, stalls=True))
    assert [row.kind for row in found if row.kind is Kind.SILENCE] == [Kind.SILENCE] * 7
    assert not any(row.kind is Kind.LEFT_OUT for row in found)
