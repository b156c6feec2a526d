"""How images teach: one file for each family of methods, a generator of losses; `table` has them by name."""

from oneway.methods.table import (
    METHODS,
    VARIANTS,
    BalanceName,
    LossName,
    Method,
    PerturbationName,
    Variant,
    VariantName,
)
