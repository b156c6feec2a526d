"""Networks, what they are in training (students, teachers, averages), and which statistics their norms use."""

from oneway.models.average import average_of, update_average
from oneway.models.image import ImageModel
from oneway.models.named import build
from oneway.models.norm import NormPolicy
from oneway.models.roles import Models
