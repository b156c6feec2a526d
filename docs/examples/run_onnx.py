"""Runs an exported model without oneway or PyTorch: python run_onnx.py model.onnx photo.jpg mask.png."""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

model, photo, mask = sys.argv[1:]
session = onnxruntime.InferenceSession(model)
colours = json.loads(session.get_modelmeta().custom_metadata_map["colours"])
image = ImageOps.exif_transpose(Image.open(photo)).convert("RGB")
(labels,) = session.run(["labels"], {"images": np.asarray(image)[None]})[0]
picture = Image.fromarray(labels)
picture.putpalette([channel for colour in colours for channel in colour])
picture.save(mask)
