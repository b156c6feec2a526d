"""Pools of images without labels that fit nowhere: indexed once, read by random access."""

from oneway.data.pool.pool import Pool, open_pool, open_pool_beside
from oneway.data.pool.sources import find_pool, is_pool
