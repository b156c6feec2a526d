"""Perturbations of the student's input, and their effect on predictions. They compose."""

from oneway.perturb.named import PERTURBATIONS, perturbation, ph, phtps, tps
from oneway.perturb.perturbation import (
    UNCHANGED,
    CutMix,
    Perturbation,
    PhTPS,
    compose,
    perturb_labels,
)
