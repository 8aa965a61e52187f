"""Where the tests' random numbers come from.

A replication's seed is made of the base seed, the name of its case and its number: no seed is
picked by hand. Any base seed must pass; ``FIREDEX_BASE_SEED=7 pytest tests/model`` tries another.
"""

import os
import zlib

import numpy as np

BASE_SEED = int(os.environ.get("FIREDEX_BASE_SEED", "0"))


def seed_for(case: str, replication: int) -> np.random.SeedSequence:
    return np.random.SeedSequence([BASE_SEED, zlib.crc32(case.encode()), replication])


def generator_for(case: str, replication: int) -> np.random.Generator:
    return np.random.default_rng(seed_for(case, replication))
