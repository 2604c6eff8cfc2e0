"""Messages between two ranks that are two objects here, over a real pair of sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch

from notebook_accel.comm.direct import ROOM, Direct

SHORT = timedelta(seconds=0.2)


@pytest.fixture
def both() -> Iterator[tuple[Direct, Direct]]:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pair = Direct(0, {1: here}, SHORT), Direct(1, {0: there}, SHORT)
    yield pair
    for one in pair:
        one.close()


def put(one: Direct, *numbers: int) -> int:
    one.mine[: len(numbers)] = torch.tensor(numbers, dtype=torch.uint8)
    return len(numbers)


def heard(one: Direct, count: int) -> list[list[int]]:
    return one.found[:, :count].tolist()


def swapped(both: tuple[Direct, Direct], first: list[int], second: list[int]) -> tuple[list[list[int]], ...]:
    """What each rank has heard after a swap of these numbers."""
    zero, one = both
    thread = threading.Thread(target=lambda: one.swap(put(one, *second)))
    thread.start()
    zero.swap(put(zero, *first))
    thread.join()
    return heard(zero, len(first)), heard(one, len(second))


def test_each_hears_all_again_and_again(both: tuple[Direct, Direct]) -> None:
    for number in range(20):
        expected = [[number, 1], [number, 2]]
        assert swapped(both, [number, 1], [number, 2]) == (expected, expected)


def test_a_full_message_arrives_whole(both: tuple[Direct, Direct]) -> None:
    content = [place % 251 for place in range(ROOM)]
    assert swapped(both, content, content) == ([content] * 2, [content] * 2)


def test_what_an_interrupt_left_unread_is_not_taken_for_the_next_answer(both: tuple[Direct, Direct]) -> None:
    zero, one = both
    with pytest.raises(TimeoutError, match=r"rank 1 did not come within 0:00:00\.2"):
        zero.swap(put(zero, 7))  # as an interrupt would: sent, and not waited for to the end
    one.swap(put(one, 8))  # rank 1 was late, and finds what rank 0 sent
    assert heard(one, 1) == [[7], [8]]
    assert swapped(both, [1], [2]) == ([[1], [2]], [[1], [2]])


def test_a_rank_that_left_an_operation_before_it_was_sent_is_told_of(both: tuple[Direct, Direct]) -> None:
    zero, one = both
    zero._count += 1  # interrupted before it had sent anything
    zero.announce(put(zero, 1))
    with pytest.raises(RuntimeError, match="rank 0 was interrupted in an earlier operation"):
        one.swap(put(one, 2))


def test_what_a_rank_said_before_it_ended_is_heard_and_then_that_it_has_ended(both: tuple[Direct, Direct]) -> None:
    zero, one = both
    one.announce(put(one, 9))
    one.close()
    zero.swap(put(zero, 1))
    assert heard(zero, 1) == [[1], [9]]
    with pytest.raises(ConnectionError, match="rank 1 has ended"):
        zero.swap(put(zero, 1))


def test_many_messages_wait_for_a_reader_that_is_late(both: tuple[Direct, Direct]) -> None:
    zero, one = both
    for number in range(4):  # a rank is at most two ahead; announcements may come on top
        zero.announce(put(zero, *[number] * ROOM))
    for number in range(4):
        one.swap(put(one, 5))
        assert one.found[0].unique().tolist() == [number]
