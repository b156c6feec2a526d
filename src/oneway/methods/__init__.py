"""Training methods: one file for each family, with a generator of losses; `table` lists the methods by name."""

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
