"""Taking a trained model elsewhere: an ONNX, OpenVINO or .pt2 file, checked against PyTorch before it gets its name."""

from oneway.tools.export.command import export_model
from oneway.tools.export.graph import Output
from oneway.tools.export.int8 import Int8
