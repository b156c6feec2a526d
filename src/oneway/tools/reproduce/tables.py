"""The paper's tables of accuracy: which runs fill them, and what the paper has in their place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from oneway.config import Config
from oneway.config.recipes import recipe
from oneway.methods import METHODS, VariantName
from oneway.tools.baseline import BASELINE


@dataclass(frozen=True)
class Setup:
    """A row: a method, and the paper's results in the order of the columns, mean and deviation of five runs."""

    method: str
    variant: VariantName = "1w-ct"
    paper: str = ""
    changes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings that differ from the recipe's, by section."""


@dataclass(frozen=True)
class Quoted:
    """A row of results of others that the paper sets beside its own, in the order of the columns; a dash: none."""

    method: str
    network: str
    source: str
    values: str

    def by_column(self, columns: tuple[str, ...]) -> dict[str, str]:
        """What was published, for the columns that have it."""
        found = zip(columns, self.values.split(", "), strict=True)
        return {column: value for column, value in found if value != "–"}


@dataclass(frozen=True)
class RunTable:
    """A row for each method or setting, a column for each number of labels."""

    shows: str
    recipe: str
    columns: tuple[str, ...]
    """As `--labels` takes them."""

    rows: Mapping[str, Setup]
    iterations: Mapping[str, int] = field(default_factory=dict)
    """Iterations of semi-supervised runs by column, where they are not the recipe's."""

    length: int | None = None
    """Iterations of every run, with labels alone too: each has a pair to be compared with. None: as the paper's."""

    drives: tuple[str, ...] = ()
    """Drives of CamVid that are held out in turn; a cell is the mean over them."""

    usual_rows: tuple[str, ...] = ()
    """Rows that are trained where none are asked for; all, if empty. Likewise `usual_columns`."""

    usual_columns: tuple[str, ...] = ()
    quoted: tuple[Quoted, ...] = ()
    over: str = BASELINE
    """The row with which others are compared, where they are."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The drives, or one nameless part for data that come with a validation set."""
        return self.drives or ("",)

    @property
    def paired(self) -> bool:
        """Whether a cell is compared with another row, and not with what the paper has in its place."""
        return self.length is not None

    @property
    def published(self) -> bool:
        """Whether the paper has numbers for any row."""
        return any(row.paper for row in self.rows.values())

    def config(self, row: str, column: str, drive: str = "") -> Config:
        """The configuration of a cell's runs, without seed and data."""
        one = self.rows[row]
        config = recipe(self.recipe, one.method).changed(variant=one.variant, labels=column, **one.changes)
        length = self.length if METHODS[one.method].supervised else self.iterations.get(column, self.length)
        if length is not None:
            config = config.changed(train={"iterations": length})
        return config.changed(data={"holdout_drive": drive}) if drive else config

    def length_of(self, row: str, column: str, labelled: int) -> int:
        """Iterations of a cell's runs, by their number of labels."""
        return self.config(row, column).train.total_iterations(labelled)

    def paper(self, row: str, column: str) -> str | None:
        """What the paper has in a cell."""
        return dict(zip(self.columns, filter(None, self.rows[row].paper.split(", ")), strict=False)).get(column)


SHARES = ("1/8", "1/4", "1/2", "all")
CIFAR_ITERATIONS = {"250": 16_000, "1000": 28_000, "4000": 31_000, "all": 31_200}
"""1000·4000/|D_l| epochs of ⌊|D_l|/128⌋ iterations."""

CIFAR_LABELS = tuple(CIFAR_ITERATIONS)
RN34 = {"model": {"backbone": "resnet34"}}
FINE = {"data": {"coarse": "none"}}
ADVERSARIAL = "Hung et al., BMVC 2018"
HIGH_AND_LOW = "Mittal et al., TPAMI 2019"
VARIED = "French et al., BMVC 2020"
ERROR_CORRECTING = "Mendel et al., ECCV 2020"
CONTEXT_AWARE = "Lai et al., CVPR 2021"
RN101, RN50 = "DeepLab v2-RN101", "DeepLab v3+-RN50"
STRENGTHS = (0, 0.5, 1, 2)
WEIGHTS = (0.125, 0.25, 0.5, 0.75, 1)

SIMPLE_HALF = "60.8 ± 1.6, 64.8 ± 1.5, 68.8 ± 0.7, 71.1 ± 0.9"
SIMPLE_FULL = "66.3 ± 1.0, 71.0 ± 0.5, 74.3 ± 0.7, 75.8 ± 0.4"
SIMPLE_CIFAR = "68.8 ± 5.4, 84.2 ± 0.4, 90.6 ± 0.4, 96.2 ± 0.2"
"""The paper's tables of `simple-phtps` with its own settings; figures that vary them show no numbers."""

STRENGTHS_IN_PAPER: dict[tuple[float, float], str] = {(0, 1): "64.9", (1, 0): "63.4", (1, 1): "64.8"}
"""The paper's values by s_G and s_P, from its table of the parts of PhTPS: its figure shows no numbers."""


def strength_name(geometric: float, photometric: float) -> str:
    """The row of two strengths."""
    return f"s_G {geometric:g}, s_P {photometric:g}"


BY_STRENGTH = {
    (geometric, photometric): Setup(
        "simple-phtps", changes={"perturb": {"geometric": geometric, "photometric": photometric}}
    )
    for geometric, photometric in product(STRENGTHS, STRENGTHS)
}
"""The setup of each pair of strengths, by s_G and s_P."""

BY_WEIGHT = {alpha: Setup("simple-phtps", changes={"train": {"alpha": alpha}}) for alpha in WEIGHTS}


def _batch_norm(name: str, columns: tuple[str, ...], chosen: str, paper: str) -> RunTable:
    """The paper's figure of what perturbed inputs do to the statistics: its numbers are those of the chosen policy."""
    rows = {
        f"{policy} inputs": Setup(
            "simple-phtps", paper=paper if policy == chosen else "", changes=_train(batch_norm=policy)
        )
        for policy in ("clean", "both")
    }
    iterations = CIFAR_ITERATIONS if name == "cifar10" else {}
    shows = f"Batch-norm statistics of clean inputs, or of perturbed ones too, on {name}"
    return RunTable(shows, name, columns, rows, iterations)


def _teacher(name: str, columns: tuple[str, ...], alpha_of_code: float) -> RunTable:
    """Paper and code differ in what the simple teacher normalises with, and on CIFAR-10 in α."""
    rows = {
        "the text": Setup("simple-phtps", changes=_train(teacher_norm="population", alpha=0.5)),
        "the code": Setup("simple-phtps", changes=_train(teacher_norm="batch", alpha=alpha_of_code)),
    }
    shows = f"Not in the paper: the simple teacher of its text, and that of its published code, on {name}"
    return RunTable(shows, name, columns, rows, CIFAR_ITERATIONS if name == "cifar10" else {})


def _train(**settings: Any) -> dict[str, dict[str, Any]]:
    return {"train": settings}


TABLES: dict[str, RunTable] = {
    "cityscapes-half": RunTable(
        "SwiftNet on half-resolution Cityscapes: methods, perturbations, shares of labels",
        "cityscapes-half",
        SHARES,
        {
            "supervised": Setup("supervised", paper="55.5 ± 0.9, 61.5 ± 0.5, 66.9 ± 0.7, 70.5 ± 0.6"),
            "supervised-phtps-aug": Setup("supervised-phtps-aug", paper="56.2, 62.2, 67.4, 70.4"),
            # Without numbers in the paper: perturbing the whole batch "did not improve upon the baseline".
            "supervised-phtps-aug-all": Setup("supervised-phtps-aug-all"),
            "simple-ph": Setup("simple-ph", paper="59.2, 64.9, 68.3, 71.8"),
            "simple-tps": Setup("simple-tps", paper="58.2, 63.4, 66.7, 70.1"),
            "simple-cutmix": Setup("simple-cutmix", paper="59.8 ± 0.5, 63.8 ± 1.2, 67.0 ± 1.4, 69.3 ± 1.1"),
            "simple-phtps": Setup("simple-phtps", paper=SIMPLE_HALF),
            "mt-cutmix-l2": Setup("mt-cutmix-l2", paper="61.6 ± 0.9, 64.6 ± 0.5, 67.6 ± 0.7, 69.9 ± 0.6"),
            "mt-cutmix": Setup("mt-cutmix", paper="59.3 ± 1.3, 63.3 ± 1.0, 66.8 ± 0.6, 69.7 ± 0.5"),
            "mt-phtps": Setup("mt-phtps", paper="62.0 ± 1.3, 66.0 ± 1.0, 69.1 ± 0.5, 71.2 ± 0.7"),
        },
    ),
    "cityscapes-half-deeplabv2": RunTable(
        "DeepLab v2-RN101 on half-resolution Cityscapes",
        "cityscapes-half-deeplabv2",
        SHARES,
        {
            "supervised": Setup("supervised", paper="56.4 ± 0.4, 61.9 ± 1.1, 66.6 ± 0.6, 69.8 ± 0.4"),
            "mt-cutmix-l2": Setup("mt-cutmix-l2", paper="63.2 ± 1.4, 65.6 ± 0.8, 67.6 ± 0.4, 70.0 ± 0.3"),
            "mt-phtps": Setup("mt-phtps", paper="61.5 ± 1.0, 66.4 ± 1.1, 69.0 ± 0.6, 71.0 ± 0.7"),
        },
        quoted=(
            Quoted("supervised", RN101, f"{HIGH_AND_LOW}; {VARIED}", "56.2, 60.2, 64.6, 66.0"),
            Quoted("s4GAN + MLMT", RN101, HIGH_AND_LOW, "59.3, 61.9, –, 65.8"),
            Quoted("supervised", RN101, ADVERSARIAL, "55.5, 59.9, 64.1, 66.4"),
            Quoted("AdvSemSeg", RN101, ADVERSARIAL, "58.8, 62.3, 65.7, 67.7"),
            Quoted("supervised", RN101, ERROR_CORRECTING, "56.0, 60.5, –, 66.0"),
            Quoted("ECS", RN101, ERROR_CORRECTING, "60.3, 63.8, –, 67.7"),
            Quoted("MT-CutMix", RN101, VARIED, "60.3 ± 1.2, 63.9 ± 0.7, –, 67.7 ± 0.4"),
        ),
    ),
    "cityscapes": RunTable(
        "SwiftNet on Cityscapes at full resolution",
        "cityscapes",
        SHARES,
        {
            "supervised": Setup("supervised", paper="61.1 ± 0.4, 67.3 ± 1.1, 71.9 ± 0.1, 75.4 ± 0.4"),
            "simple-phtps": Setup("simple-phtps", paper=SIMPLE_FULL),
            "mt-phtps": Setup("mt-phtps", paper="68.6 ± 0.6, 72.0 ± 0.3, 73.8 ± 0.4, 75.0 ± 0.4"),
            "RN34 supervised": Setup(
                "supervised", paper="64.9 ± 0.8, 69.8 ± 1.0, 73.8 ± 1.4, 76.1 ± 0.8", changes=RN34
            ),
            "RN34 simple-phtps": Setup(
                "simple-phtps", paper="69.2 ± 0.8, 73.1 ± 0.7, 76.3 ± 0.7, 77.9 ± 0.2", changes=RN34
            ),
            "RN34 mt-phtps": Setup("mt-phtps", paper="70.8 ± 1.5, 74.3 ± 0.5, 76.0 ± 0.5, 77.2 ± 0.4", changes=RN34),
        },
        quoted=(
            Quoted("KE-GAN", "its own network", "Qi et al., CVPR 2019", "66.9, 70.6, 72.2, 75.3"),
            Quoted("supervised", RN50, ERROR_CORRECTING, "63.2, 68.4, 72.9, 74.8"),
            Quoted("ECS", RN50, ERROR_CORRECTING, "67.4, 70.7, 72.9, 74.8"),
            Quoted("supervised", RN50, CONTEXT_AWARE, "63.9, 68.3, 71.2, 76.3"),
            Quoted("CAC", RN50, CONTEXT_AWARE, "69.7, 72.7, –, 77.5"),
        ),
    ),
    "cityscapes-coarse": RunTable(
        "20,000 further images: without labels, or with coarse ones for supervised training; and the fine ones alone",
        "cityscapes-coarse",
        ("all",),
        {
            "supervised": Setup("supervised", paper="76.9 ± 0.3"),
            "supervised, fine": Setup("supervised", paper="75.4 ± 0.4", changes=FINE),
            "simple-phtps": Setup("simple-phtps", paper="76.5 ± 0.3"),
            "simple-phtps, fine": Setup("simple-phtps", paper="75.8 ± 0.4", changes=FINE),
            "mt-phtps": Setup("mt-phtps", paper="75.5 ± 0.3"),
            "mt-phtps, fine": Setup("mt-phtps", paper="75.0 ± 0.4", changes=FINE),
            "RN34 supervised": Setup("supervised", paper="77.7 ± 0.4", changes=RN34),
            "RN34 supervised, fine": Setup("supervised", paper="76.1 ± 0.8", changes=RN34 | FINE),
            "RN34 simple-phtps": Setup("simple-phtps", paper="78.5 ± 0.4", changes=RN34),
            "RN34 simple-phtps, fine": Setup("simple-phtps", paper="77.9 ± 0.2", changes=RN34 | FINE),
        },
    ),
    "perturbation-strength": RunTable(
        "Strengths of the two halves of PhTPS; the paper's figure is best near s_G 1, s_P 0.5",
        "cityscapes-half",
        ("1/4",),
        {
            strength_name(*strengths): replace(one, paper=STRENGTHS_IN_PAPER.get(strengths, ""))
            for strengths, one in BY_STRENGTH.items()
        },
    ),
    "consistency-weight": RunTable(
        "The weight α of the consistency loss; the paper's figure is best from 0.25 to 0.75",
        "cityscapes-half",
        SHARES,
        {f"α {alpha:g}": replace(one, paper=SIMPLE_HALF if alpha == 0.5 else "") for alpha, one in BY_WEIGHT.items()},
    ),
    "batch-norm-half": _batch_norm("cityscapes-half", SHARES, "clean", SIMPLE_HALF),
    "batch-norm": _batch_norm("cityscapes", SHARES, "both", SIMPLE_FULL),
    "variants": RunTable(
        "Kinds of consistency on half-resolution Cityscapes, with the simple and the mean teacher",
        "cityscapes-half",
        ("1/4",),
        {
            "supervised": Setup("supervised", paper="61.5 ± 0.5"),
            "simple 1w-ct": Setup("simple-phtps", "1w-ct", "65.3 ± 1.9"),
            "simple 1w-cs": Setup("simple-phtps", "1w-cs", "1.6 ± 1.0"),
            "simple 2w-c1": Setup("simple-phtps", "2w-c1", "16.7 ± 3.0"),
            "simple 1w-p2": Setup("simple-phtps", "1w-p2", "61.6 ± 0.5"),
            "mt 1w-ct": Setup("mt-phtps", "1w-ct", "66.0 ± 1.0"),
            "mt 1w-cs": Setup("mt-phtps", "1w-cs", "61.5 ± 1.4"),
            "mt 1w-p2": Setup("mt-phtps", "1w-p2", "62.0 ± 1.1"),
        },
    ),
    "cifar10": RunTable(
        "Classification of CIFAR-10 with 250 to 50,000 labels",
        "cifar10",
        CIFAR_LABELS,
        {
            "supervised": Setup("supervised", paper="31.8 ± 0.6, 59.3 ± 1.4, 81.0 ± 0.2, 94.7"),
            "supervised-phtps-aug": Setup("supervised-phtps-aug", paper="48.7 ± 0.9, 67.2 ± 0.5, 81.7 ± 0.2, 95.0"),
            "vat-entmin": Setup("vat-entmin", paper="41.0 ± 2.5, 73.2 ± 1.5, 84.2 ± 0.4, 90.5 ± 0.2"),
            "simple 1w-cs": Setup("simple-phtps", "1w-cs", "27.7 ± 5.9, 51.7 ± 3.5, 69.3 ± 4.2, 91.6 ± 1.5"),
            "simple 2w-c1": Setup("simple-phtps", "2w-c1", "30.3 ± 1.8, 54.8 ± 1.5, 72.9 ± 2.6, 95.9 ± 0.2"),
            "simple 1w-ct": Setup("simple-phtps", "1w-ct", SIMPLE_CIFAR),
        },
        CIFAR_ITERATIONS,
    ),
    "cifar10-variants": RunTable(
        "Kinds of consistency on CIFAR-10, with the simple and the mean teacher",
        "cifar10",
        ("4000",),
        {
            "supervised": Setup("supervised", paper="80.8 ± 0.4"),
            "simple 1w-ct": Setup("simple-phtps", "1w-ct", "90.8 ± 0.3"),
            "simple 1w-cs": Setup("simple-phtps", "1w-cs", "69.3 ± 4.2"),
            "simple 2w-c1": Setup("simple-phtps", "2w-c1", "72.9 ± 2.6"),
            "simple 1w-p2": Setup("simple-phtps", "1w-p2", "73.3 ± 7.0"),
            "mt 1w-ct": Setup("mt-phtps", "1w-ct", "90.8 ± 0.4"),
            "mt 1w-cs": Setup("mt-phtps", "1w-cs", "80.5 ± 0.5"),
            "mt 1w-p2": Setup("mt-phtps", "1w-p2", "73.4 ± 1.4"),
        },
    ),
    "cifar10-batch-norm": _batch_norm("cifar10", CIFAR_LABELS, "clean", SIMPLE_CIFAR),
    "cifar10-teacher": _teacher("cifar10", CIFAR_LABELS, alpha_of_code=1.0),
    "cifar10-beyond": RunTable(
        "Not in the paper: its text's warp, one like that of its code, and FixMatch, on CIFAR-10",
        "cifar10",
        ("4000",),
        {
            "warp of the text": Setup("simple-phtps", changes={"perturb": {"deviation": 0.1}}),
            "warp of the code": Setup("simple-phtps", changes={"perturb": {"deviation": 0.1, "control": (0.75, 1.25)}}),
            "fixmatch-ema": Setup("fixmatch-ema"),
        },
    ),
    "cityscapes-half-teacher": _teacher("cityscapes-half", SHARES, alpha_of_code=0.5),
    "camvid-official": RunTable(
        "Not in the paper: CamVid's official split, seconds of one drive, from random weights",
        "camvid",
        ("1/8", "all"),
        {
            method: Setup(method, changes={"model": {"weights": None}, **_train(iterations=8000)})
            for method in ("supervised", "simple-phtps", "mt-phtps")
        },
    ),
}
