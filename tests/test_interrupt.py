"""Signals that wait for the end of an iteration."""

from __future__ import annotations

import signal
import threading

import pytest

from oneway.common.interrupt import defer_signals


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_waits_and_the_second_acts(second):
    """Whichever of the two it is; afterwards both do what they did before."""
    acted: list[int] = []
    before = {number: signal.signal(number, lambda n, _: acted.append(n)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with defer_signals() as received:
            assert received() is None
            signal.raise_signal(signal.SIGINT)
            assert (received(), acted) == (signal.SIGINT, [])
            signal.raise_signal(second)
            assert acted == [second]
        signal.raise_signal(signal.SIGTERM)
        assert acted == [second, signal.SIGTERM]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_notice_of_a_scheduler_waits_unless_the_program_gives_it_another_meaning(number):
    """Whoever calls `fit` may print where it is, say; without a handler, the signal would end the process."""
    told: list[int] = []
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with defer_signals() as received:
            signal.raise_signal(number)
            assert received() == number
        signal.signal(number, lambda n, _: told.append(n))
        with defer_signals() as received:
            signal.raise_signal(number)
            assert (received(), told) == (None, [number])
    finally:
        signal.signal(number, before)


def test_in_another_thread_signals_are_left_to_the_main_thread():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    found: list[object] = []

    def block() -> None:
        with defer_signals() as received:
            found.extend((received(), {number: signal.getsignal(number) for number in before}))

    thread = threading.Thread(target=block)
    thread.start()
    thread.join()
    assert found == [None, before]
