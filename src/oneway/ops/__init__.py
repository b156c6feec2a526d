"""Operations on tensors: each a function with a PyTorch reference and, for GPUs, a Triton kernel; `backend` chooses."""

from oneway.ops.activation import Activation
from oneway.ops.ahead import cache_folder, compile_ahead, hash_compiler, start_compilers
from oneway.ops.backend import kernels_run, references
from oneway.ops.balanced import dice, hardest_cross_entropy, weight_of_labels
from oneway.ops.cast import cast_together
from oneway.ops.classmix import half_of_classes, paste
from oneway.ops.collective import Group, current, divided, gathered, mean_of_all
from oneway.ops.colour import jitter_colours
from oneway.ops.contrast import Cells, cells_of, chosen, directional_contrast, shifted
from oneway.ops.conv import conv
from oneway.ops.crops import Window, crop_images, crop_labels
from oneway.ops.cross_entropy import confident_cross_entropy, cross_entropy
from oneway.ops.cutmix import cutmix, square_mask
from oneway.ops.depthwise import depthwise
from oneway.ops.intensity import vary_intensity
from oneway.ops.losses import confident_l2, entropy, kl_map, masked_kl, pixels_of, upsample
from oneway.ops.moved_kl import Geometry, moved, moved_kl
from oneway.ops.norm import norm, sum_norm
from oneway.ops.norm_pool import norm_pool
from oneway.ops.photometric import photometric, with_strength
from oneway.ops.phtps import phtps
from oneway.ops.resize import resize
from oneway.ops.shared_norm import sharing_batches
from oneway.ops.side_stream import on_side_stream
from oneway.ops.stem import stem
from oneway.ops.warp import Warp, splat, warp
