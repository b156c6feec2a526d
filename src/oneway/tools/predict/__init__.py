"""Using a trained model: masks, overlays and confidence of images, folders and videos."""

from oneway.tools.predict.command import predict_files
from oneway.tools.predict.loading import load
from oneway.tools.predict.outputs import Outputs
from oneway.tools.predict.prediction import Prediction
from oneway.tools.predict.predictor import Predictor
