"""Networks, their roles in training (students, teachers, EMAs), and the statistics of their batch norms."""

from oneway.models.ema import init_ema, update_ema
from oneway.models.image import ImageModel
from oneway.models.named import build
from oneway.models.norm import NormPolicy
from oneway.models.roles import Models
