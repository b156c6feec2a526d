"""Results of others that the paper sets beside its own; nothing here is trained, and each says where it is from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Quoted:
    """A row of published results, in the order of the columns; a dash where there is none."""

    method: str
    network: str
    source: str
    values: str

    def by_column(self, columns: tuple[str, ...]) -> dict[str, str]:
        """What was published, for the columns that have it."""
        found = zip(columns, self.values.split(", "), strict=True)
        return {column: value for column, value in found if value != "–"}


ADVERSARIAL = "Hung et al., BMVC 2018"
HIGH_AND_LOW = "Mittal et al., TPAMI 2019"
ERROR_CORRECTING = "Mendel et al., ECCV 2020"
CONTEXT_AWARE = "Lai et al., CVPR 2021"
RN101, RN50 = "DeepLab v2-RN101", "DeepLab v3+-RN50"

QUOTED: dict[str, tuple[Quoted, ...]] = {
    "cityscapes-half-deeplabv2": (
        Quoted("supervised", RN101, HIGH_AND_LOW, "56.2, 60.2, 64.6, 66.0"),
        Quoted("s4GAN + MLMT", RN101, HIGH_AND_LOW, "59.3, 61.9, –, 65.8"),
        Quoted("supervised", RN101, ADVERSARIAL, "55.5, 59.9, 64.1, 66.4"),
        Quoted("AdvSemSeg", RN101, ADVERSARIAL, "58.8, 62.3, 65.7, 67.7"),
        Quoted("supervised", RN101, ERROR_CORRECTING, "56.0, 60.5, –, 66.0"),
        Quoted("ECS", RN101, ERROR_CORRECTING, "60.3, 63.8, –, 67.7"),
        Quoted("MT-CutMix", RN101, "French et al., BMVC 2020", "60.3 ± 1.2, 63.9 ± 0.7, –, 67.7 ± 0.4"),
    ),
    "cityscapes": (
        Quoted("KE-GAN", "its own network", "Qi et al., CVPR 2019", "66.9, 70.6, 72.2, 75.3"),
        Quoted("supervised", RN50, ERROR_CORRECTING, "63.2, 68.4, 72.9, 74.8"),
        Quoted("ECS", RN50, ERROR_CORRECTING, "67.4, 70.7, 72.9, 74.8"),
        Quoted("supervised", RN50, CONTEXT_AWARE, "63.9, 68.3, 71.2, 76.3"),
        Quoted("CAC", RN50, CONTEXT_AWARE, "69.7, 72.7, –, 77.5"),
    ),
}
"""By the name of the table."""
