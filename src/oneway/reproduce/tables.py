"""The paper's tables of accuracy: which runs fill them, and what the paper has in their place."""

from __future__ import annotations

from dataclasses import dataclass, field

from oneway.config import Config
from oneway.methods import METHODS, MethodName, VariantName
from oneway.recipes import recipe


@dataclass(frozen=True)
class Row:
    """A method, and the paper's results in the order of the columns: mean and deviation of five runs."""

    method: MethodName
    variant: VariantName = "1w-ct"
    paper: tuple[str, ...] = ()


@dataclass(frozen=True)
class PaperTable:
    """A row for each method, a column for each number of labels."""

    shows: str
    recipe: str
    columns: tuple[str, ...]
    """As `--labels` takes them."""

    rows: dict[str, Row]
    iterations: dict[str, int] = field(default_factory=dict)
    """Of semi-supervised runs, by column, where the recipe's are those of another column."""

    def config(self, row: str, column: str) -> Config:
        """Of the runs in a cell, but for seed and data."""
        method, variant = self.rows[row].method, self.rows[row].variant
        config = recipe(self.recipe, method).model_copy(update={"method": method, "variant": variant, "labels": column})
        if METHODS[method].supervised or column not in self.iterations:
            return config
        train = config.train.model_copy(update={"iterations": self.iterations[column]})
        return config.model_copy(update={"train": train})

    def paper(self, row: str, column: str) -> str | None:
        """What the paper has in a cell."""
        return dict(zip(self.columns, self.rows[row].paper, strict=False)).get(column)


SHARES = ("1/8", "1/4", "1/2", "all")

TABLES: dict[str, PaperTable] = {
    "cityscapes-half": PaperTable(
        "SwiftNet on half-resolution Cityscapes: methods, perturbations, shares of labels",
        "cityscapes-half",
        SHARES,
        {
            "supervised": Row("supervised", paper=("55.5 ± 0.9", "61.5 ± 0.5", "66.9 ± 0.7", "70.5 ± 0.6")),
            "supervised-phtps-aug": Row("supervised-phtps-aug", paper=("56.2", "62.2", "67.4", "70.4")),
            "simple-ph": Row("simple-ph", paper=("59.2", "64.9", "68.3", "71.8")),
            "simple-tps": Row("simple-tps", paper=("58.2", "63.4", "66.7", "70.1")),
            "simple-cutmix": Row("simple-cutmix", paper=("59.8 ± 0.5", "63.8 ± 1.2", "67.0 ± 1.4", "69.3 ± 1.1")),
            "simple-phtps": Row("simple-phtps", paper=("60.8 ± 1.6", "64.8 ± 1.5", "68.8 ± 0.7", "71.1 ± 0.9")),
            "mt-cutmix-l2": Row("mt-cutmix-l2", paper=("61.6 ± 0.9", "64.6 ± 0.5", "67.6 ± 0.7", "69.9 ± 0.6")),
            "mt-cutmix": Row("mt-cutmix", paper=("59.3 ± 1.3", "63.3 ± 1.0", "66.8 ± 0.6", "69.7 ± 0.5")),
            "mt-phtps": Row("mt-phtps", paper=("62.0 ± 1.3", "66.0 ± 1.0", "69.1 ± 0.5", "71.2 ± 0.7")),
        },
    ),
    "cityscapes-half-deeplabv2": PaperTable(
        "DeepLab v2-RN101 on half-resolution Cityscapes",
        "cityscapes-half-deeplabv2",
        SHARES,
        {
            "supervised": Row("supervised", paper=("56.4 ± 0.4", "61.9 ± 1.1", "66.6 ± 0.6", "69.8 ± 0.4")),
            "mt-cutmix-l2": Row("mt-cutmix-l2", paper=("63.2 ± 1.4", "65.6 ± 0.8", "67.6 ± 0.4", "70.0 ± 0.3")),
            "mt-phtps": Row("mt-phtps", paper=("61.5 ± 1.0", "66.4 ± 1.1", "69.0 ± 0.6", "71.0 ± 0.7")),
        },
    ),
    "cityscapes": PaperTable(
        "SwiftNet on Cityscapes at full resolution",
        "cityscapes",
        SHARES,
        {
            "supervised": Row("supervised", paper=("61.1", "67.3", "71.9", "75.4")),
            "simple-phtps": Row("simple-phtps", paper=("66.3", "71.0", "74.3", "75.8")),
            "mt-phtps": Row("mt-phtps", paper=("68.6", "72.0", "73.8", "75.0")),
        },
    ),
    "variants": PaperTable(
        "Kinds of consistency on half-resolution Cityscapes, with the simple and the mean teacher",
        "cityscapes-half",
        ("1/4",),
        {
            "supervised": Row("supervised", paper=("61.5 ± 0.5",)),
            "simple 1w-ct": Row("simple-phtps", "1w-ct", ("65.3 ± 1.9",)),
            "simple 1w-cs": Row("simple-phtps", "1w-cs", ("1.6 ± 1.0",)),
            "simple 2w-c1": Row("simple-phtps", "2w-c1", ("16.7 ± 3.0",)),
            "simple 1w-p2": Row("simple-phtps", "1w-p2", ("61.6 ± 0.5",)),
            "mt 1w-ct": Row("mt-phtps", "1w-ct", ("66.0 ± 1.0",)),
            "mt 1w-cs": Row("mt-phtps", "1w-cs", ("61.5 ± 1.4",)),
            "mt 1w-p2": Row("mt-phtps", "1w-p2", ("62.0 ± 1.1",)),
        },
    ),
    "cifar10": PaperTable(
        "Classification of CIFAR-10 with 250 to 50,000 labels",
        "cifar10",
        ("250", "1000", "4000", "all"),
        {
            "supervised": Row("supervised", paper=("31.8 ± 0.6", "59.3 ± 1.4", "81.0 ± 0.2", "94.7")),
            "supervised-phtps-aug": Row(
                "supervised-phtps-aug", paper=("48.7 ± 0.9", "67.2 ± 0.5", "81.7 ± 0.2", "95.0")
            ),
            "vat-entmin": Row("vat-entmin", paper=("41.0 ± 2.5", "73.2 ± 1.5", "84.2 ± 0.4", "90.5 ± 0.2")),
            "simple 1w-cs": Row("simple-phtps", "1w-cs", ("27.7 ± 5.9", "51.7 ± 3.5", "69.3 ± 4.2", "91.6 ± 1.5")),
            "simple 2w-c1": Row("simple-phtps", "2w-c1", ("30.3 ± 1.8", "54.8 ± 1.5", "72.9 ± 2.6", "95.9 ± 0.2")),
            "simple 1w-ct": Row("simple-phtps", "1w-ct", ("68.8 ± 5.4", "84.2 ± 0.4", "90.6 ± 0.4", "96.2 ± 0.2")),
        },
        # 1000·4000/|D_l| epochs of ⌊|D_l|/128⌋ iterations
        {"250": 16_000, "1000": 28_000, "4000": 31_000, "all": 31_200},
    ),
    "cifar10-variants": PaperTable(
        "Kinds of consistency on CIFAR-10, with the simple and the mean teacher",
        "cifar10",
        ("4000",),
        {
            "supervised": Row("supervised", paper=("80.8 ± 0.4",)),
            "simple 1w-ct": Row("simple-phtps", "1w-ct", ("90.8 ± 0.3",)),
            "simple 1w-cs": Row("simple-phtps", "1w-cs", ("69.3 ± 4.2",)),
            "simple 2w-c1": Row("simple-phtps", "2w-c1", ("72.9 ± 2.6",)),
            "simple 1w-p2": Row("simple-phtps", "1w-p2", ("73.3 ± 7.0",)),
            "mt 1w-ct": Row("mt-phtps", "1w-ct", ("90.8 ± 0.4",)),
            "mt 1w-cs": Row("mt-phtps", "1w-cs", ("80.5 ± 0.5",)),
            "mt 1w-p2": Row("mt-phtps", "1w-p2", ("73.4 ± 1.4",)),
        },
    ),
    "camvid": PaperTable(
        "Not in the paper: CamVid from random weights, which takes minutes where Cityscapes takes hours",
        "camvid",
        ("1/8", "all"),
        {"supervised": Row("supervised"), "simple-phtps": Row("simple-phtps"), "mt-phtps": Row("mt-phtps")},
    ),
}
