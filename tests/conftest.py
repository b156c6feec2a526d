"""What several tests need: small worlds, made once."""

from __future__ import annotations

import torch

# Tests run several to a machine; more threads each would only make them wait for one another.
torch.set_num_threads(1)
