"""Types of NumPy arrays, for annotations."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Indices = NDArray[np.intp]
Bools = NDArray[np.bool_]
