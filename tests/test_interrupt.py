"""Facts about signals that wait for the end of an iteration."""

from __future__ import annotations

import signal

import pytest

from oneway.common.interrupt import signals_noted


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_the_second_acts(second):
    """Whichever of the two it is; afterwards both do what they did before."""
    acted: list[int] = []
    before = {number: signal.signal(number, lambda n, _: acted.append(n)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with signals_noted() as noted:
            assert noted() is None
            signal.raise_signal(signal.SIGINT)
            assert (noted(), acted) == (signal.SIGINT, [])
            signal.raise_signal(second)
            assert acted == [second]
        signal.raise_signal(signal.SIGTERM)
        assert acted == [second, signal.SIGTERM]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
