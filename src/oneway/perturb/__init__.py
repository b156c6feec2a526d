"""Perturbations: what the student's input undergoes, and what that means for a prediction. They compose."""

from oneway.perturb.drawn import PERTURBATIONS, perturbation, ph, phtps, tps
from oneway.perturb.perturbation import (
    UNCHANGED,
    Composed,
    CutMix,
    Perturbation,
    PhTPS,
    Shift,
    compose,
    perturb_labels,
)
