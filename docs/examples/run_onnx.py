"""Runs an exported model without oneway or PyTorch: python run_onnx.py model.onnx photo.jpg mask.png."""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

if len(sys.argv) != 4:
    sys.exit(__doc__)
model, photo, mask = sys.argv[1:]
session = onnxruntime.InferenceSession(model)
about = session.get_modelmeta().custom_metadata_map
colours, bits = json.loads(about["colours"]), int(about["bits"])
image = ImageOps.exif_transpose(Image.open(photo))
if image.mode.startswith("I"):  # 16 bits: the upper 8 of those in use remain; Pillow would cut off instead
    image = Image.fromarray((np.asarray(image) >> bits - 8).clip(max=255).astype(np.uint8))
(labels,) = session.run(["labels"], {"images": np.asarray(image.convert("RGB"))[None]})[0]
picture = Image.fromarray(labels)
picture.putpalette([channel for colour in colours for channel in colour])
picture.save(mask)
