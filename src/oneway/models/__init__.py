"""Networks, what they are in training (students, teachers, averages), and which statistics their norms use."""

from oneway.models.ema import init_ema, update_ema
from oneway.models.image import ImageModel
from oneway.models.named import build
from oneway.models.norm import NormPolicy
from oneway.models.roles import Models
