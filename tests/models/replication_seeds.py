"""Seeds of the random numbers in tests of the model.

The seed of a replication consists of the base seed, the name of the case and the number of the
replication, so no seed is chosen by hand. The tests must pass with any base seed;
``FIREDEX_BASE_SEED=7 pytest tests/models`` uses another one.
"""

import os
import zlib

import numpy as np

BASE_SEED = int(os.environ.get("FIREDEX_BASE_SEED", "0"))


def seed_for(case: str, replication: int) -> np.random.SeedSequence:
    return np.random.SeedSequence([BASE_SEED, zlib.crc32(case.encode()), replication])


def generator_for(case: str, replication: int) -> np.random.Generator:
    return np.random.default_rng(seed_for(case, replication))
