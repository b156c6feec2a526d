"""Published data sets, each listed or read from its official layout."""

from oneway.data.published.ade20k import list_ade20k
from oneway.data.published.camvid import list_camvid
from oneway.data.published.cityscapes import list_cityscapes
from oneway.data.published.coco_stuff import list_coco_stuff
from oneway.data.published.shared import with_further_images
from oneway.data.published.voc import list_voc
