"""Perturbations of the student's input, and their effect on predictions. They compose."""

from oneway.perturb.named import PERTURBATIONS, perturbation, ph, phtps, tps
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
