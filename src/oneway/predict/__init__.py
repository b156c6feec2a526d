"""Using a trained model: masks, overlays and confidence of images, folders and videos."""

from oneway.predict.command import predict_files
from oneway.predict.outputs import Outputs
from oneway.predict.prediction import Prediction
from oneway.predict.predictor import Predictor, load

__all__ = ["Outputs", "Prediction", "Predictor", "load", "predict_files"]
