"""A function that is captured and replayed gives what it gives kernel by kernel, whatever comes between its calls."""

from __future__ import annotations

import pytest
import torch

from oneway.engine import replay
from oneway.engine.replay import ReplayedFunction

CPU = torch.device("cpu")


class OnCPU:
    """What a captured call promises, on a CPU: one memory for all inputs, and one for all results."""

    def __init__(self, function, like, device=None):
        self.function, self.input = function, like.clone()
        self.results = [result.clone() for result in function(self.input)]

    def __call__(self, x):
        self.input.copy_(x)
        for kept, result in zip(self.results, self.function(self.input), strict=True):
            kept.copy_(result)
        return tuple(self.results)


def squares(x, offset=0):
    """Two results, as a network's classes and their probabilities are."""
    return x.float().square() + offset, x.sum(dim=(1, 2, 3))


@pytest.fixture
def made(monkeypatch):
    """Captures as if the CPU were a GPU; the shapes that have been captured."""
    shapes = []

    def capture(function, like, device):
        shapes.append(tuple(like.shape))
        return OnCPU(function, like)

    monkeypatch.setattr(replay, "CapturedCall", capture)
    return shapes


def on_a_gpu(function) -> ReplayedFunction:
    replayed = ReplayedFunction(function, CPU)
    replayed.captures = True
    return replayed


def images(*shape):
    return torch.randint(256, (*shape, 3), dtype=torch.uint8)


def test_what_comes_a_second_time_is_captured(made):
    """Before and after, results are the function's."""
    replayed = on_a_gpu(squares)
    for x in (images(1, 4, 6), images(1, 4, 6), images(1, 6, 4), images(1, 4, 6)):
        for found, expected in zip(replayed(x, 0), squares(x), strict=True):
            assert torch.equal(found, expected)
    assert made == [(1, 4, 6, 3)]


def test_one_shape_in_two_ways_is_two_functions(made):
    x, replayed = images(2, 4, 4), on_a_gpu(squares)
    for offset in (0, 0, 5, 5, 0):
        assert torch.equal(replayed(x, offset)[0], squares(x, offset)[0])
    assert len(made) == 2


def test_large_inputs_are_not_captured(made, monkeypatch):
    """Graphs would keep the memory of their activations."""
    monkeypatch.setattr(replay, "MOST_BYTES", 3 * 30)
    replayed = on_a_gpu(squares)
    for x in (images(1, 4, 6), images(1, 5, 4), images(1, 3, 2)):
        for _ in range(3):
            assert torch.equal(replayed(x)[0], squares(x)[0])
    assert made == [(1, 4, 6, 3), (1, 3, 2, 3)]


def test_what_cannot_be_captured_goes_on(monkeypatch):
    def refuse(*given):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(replay, "CapturedCall", refuse)
    x, replayed = images(1, 4, 4), on_a_gpu(squares)
    for _ in range(3):
        assert torch.equal(replayed(x)[0], squares(x)[0])


def test_graphs_give_way_to_an_image_that_needs_their_memory(made):
    """It is seen with their memory; where there are none, that there is too little is said."""
    x, large, replayed = images(1, 4, 4), images(1, 8, 8), None

    def hungry(given):
        if len(given[0]) > 4 and (replayed is None or replayed.calls):
            raise torch.OutOfMemoryError("out of memory")
        return squares(given)

    replayed = on_a_gpu(hungry)
    replayed(x), replayed(x)
    assert len(made) == 1
    assert torch.equal(replayed(large)[0], squares(large)[0])
    assert torch.equal(replayed(x)[0], squares(x)[0])
    replayed = None
    with pytest.raises(torch.OutOfMemoryError):
        on_a_gpu(hungry)(large)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_graph_gives_what_its_kernels_give():
    """For inputs on the CPU, call after call; results stay when the next call is made."""
    device, given = torch.device("cuda"), [images(2, 16, 16) for _ in range(4)]
    replayed = ReplayedFunction(squares, device)
    for x, found in [(x, replayed(x)) for x in given]:
        assert all(torch.equal(a, b) for a, b in zip(found, squares(x), strict=True))
    assert len(replayed.calls) == 1


def test_a_graph_is_captured_on_the_gpu_of_its_model(made, monkeypatch):
    """And so are all calls made there, whichever GPU is the current one of the thread."""
    entered, where = [], []

    class Current:
        def __init__(self, device):
            self.device = device

        def __enter__(self):
            entered.append(self.device)

        def __exit__(self, *_):
            entered.pop()

    def observed(x):
        where.append(list(entered))
        return squares(x)

    monkeypatch.setattr(torch.cuda, "device", Current)
    x, replayed = images(1, 4, 4), ReplayedFunction(observed, torch.device("cuda", 1))
    replayed.seen.add((x.shape, ()))
    for _ in range(2):
        assert torch.equal(replayed(x)[0], squares(x)[0])
    assert (len(made), len(where) > 1, entered) == (1, True, [])
    assert all(devices == [torch.device("cuda", 1)] for devices in where)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_graph_of_another_gpu_than_the_current_one_gives_what_its_kernels_give():
    """A capture on the current GPU would be empty, and its replay return the last call's results."""
    replayed = ReplayedFunction(squares, torch.device("cuda", 1))
    with torch.cuda.device(0):
        for x in [images(2, 16, 16) for _ in range(4)]:
            assert all(torch.equal(a, b) for a, b in zip(replayed(x), squares(x), strict=True))
    assert len(replayed.calls) == 1
