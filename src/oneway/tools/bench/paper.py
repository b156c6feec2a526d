"""What the paper reports, by the names of our cases. Hardware: one NVIDIA RTX A4500."""

from __future__ import annotations

from typing import NamedTuple


class Training(NamedTuple):
    """A row of the paper's table of training times and memory, which includes loading the data."""

    mib: int
    minutes: int
    iterations: int

    @property
    def milliseconds(self) -> float:
        """Milliseconds of one iteration."""
        return 60_000 * self.minutes / self.iterations


TRAINING: dict[tuple[str, str], Training] = {
    ("rn18-768", "supervised"): Training(4444, 321, 92_750),
    ("rn18-768", "simple-phtps"): Training(6683, 732, 92_750),
    ("rn18-768", "mt-phtps"): Training(6727, 768, 92_750),
    ("rn34-768", "supervised"): Training(5500, 422, 92_750),
    ("rn34-768", "simple-phtps"): Training(7737, 994, 92_750),
    ("rn34-768", "mt-phtps"): Training(7818, 1013, 92_750),
    ("rn18-448", "simple-phtps"): Training(2398, 228, 74_200),
    ("rn18-448", "mt-phtps"): Training(2456, 234, 74_200),
    ("rn18-448-b4", "supervised"): Training(1646, 119, 74_200),
    ("dlv2-321-b10", "mt-cutmix-l2"): Training(16_289, 1067, 40_000),
    ("dlv2-321", "mt-cutmix-l2"): Training(7037, 794, 37_100),
    ("dlv2-448", "supervised"): Training(6611, 338, 74_300),
    ("dlv2-448", "mt-phtps"): Training(7021, 816, 74_300),
    ("dlv3p-720", "supervised"): Training(11_645, 1229, 92_560),
    ("dlv3p-720", "simple-phtps"): Training(13_384, 1884, 92_560),
    ("dlv3p-720", "cac"): Training(25_165, 3000, 92_560),  # minutes at least, estimated on an A100
}
"""By case and setup, all rows of its table; its supervised one at 448×448 has batches of 4, a case of its own."""

PARAMETERS = {"swiftnet-rn18": 11.80, "swiftnet-rn34": 21.91, "deeplabv3plus-rn50": 40.35, "deeplabv2-rn101": 43.80}
"""Millions, for 19 classes."""

INFERENCE: dict[str, dict[tuple[int, int], float]] = {
    "swiftnet-rn18": {(1024, 2048): 56.5, (512, 1024): 139.5},
    "swiftnet-rn34": {(1024, 2048): 39.2, (512, 1024): 93.4},
    "deeplabv3plus-rn50": {(1024, 2048): 16.1, (512, 1024): 54.2},
    "deeplabv2-rn101": {(1024, 2048): 5.1, (512, 1024): 19.6},
    "swiftnet-lite0": {},
    "swiftnet-mnv4m": {},
}
"""Images per second by height and width: one by one, the cross-entropy loss included. Two networks are not its own."""

OVERHEAD = {"rn34-768": 1.26}
"""Memory at line 16 of Algorithm 1 over that at line 9, one-way."""
