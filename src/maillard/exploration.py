"""Exploration from Q-values and visit counts: the paper's replacement for Boltzmann exploration (softmax)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from maillard.errors import InvalidValue
from maillard.policies.numerics.families import gaussian_exponent

# Types that NumPy converts; anything else must be an array of another library.
_NUMPY_TYPES = (np.ndarray, np.generic, int, float, Sequence, type(None))


@np.errstate(over="ignore", under="ignore", invalid="ignore")  # overflow is intended, see below
def explore(
    values: Any, counts: Any, *, sigma2: Any, booster: Any = 4.0, mask: Any = None, log: bool = False
) -> Any:
    """Return the probability of each action along the last axis, for every row of a batch.

        p_a  proportional to  B^[a is a leader] exp(-N_a d_a^2 / (2 sigma2)),    d_a = best value - value of a

    `values` are estimates, and `counts` (N) the number of observations behind each, which may be fractional.
    `sigma2` is the variance proxy of one observation, `booster` (B >= 1) the weight of a leader, and `mask`
    is True where an action is allowed. All arguments broadcast. The best value is taken over allowed actions
    with a positive count, and every action that attains it is a leader. An allowed action with count 0 has
    weight 1 regardless of its value. An action that is not allowed has probability 0. With `log=True`, return
    log probabilities; they are -inf for actions that are not allowed, and below the range of the dtype.

    The function works with any array-API library (NumPy, PyTorch, JAX, CuPy, ...). The result has the
    library, device and dtype of `values`, or the default float type if they are integers. Half precision is
    computed in float32. Types and shapes are always checked. Numbers are checked only in Python and NumPy
    objects, so the function can be traced by `jax.jit`. In arrays of other libraries an invalid number makes
    its row NaN: no allowed action, a NaN count, a NaN or +inf value with a positive count, a negative
    `sigma2`, or a `booster` below 1. A negative count counts as 0.

    Reference: Bian and Jun, "Maillard Sampling: Boltzmann Exploration Done Optimally" (2022), the equation in
    the conclusion, with the factor N that is missing in print (MS+ with C = D = 0).

    >>> explore([0.5, 0.4, 0.0], [100, 25, 0], sigma2=0.25).round(3)
    array([0.713, 0.108, 0.178])
    """
    given = {"values": values, "counts": counts, "sigma2": sigma2, "booster": booster}
    xp, given = _arrays(given if mask is None else given | {"mask": mask})
    values, counts, sigma2, booster = (given[name] for name in ("values", "counts", "sigma2", "booster"))
    mask = given.get("mask")
    result_dtype = values.dtype if xp.isdtype(values.dtype, "real floating") else xp.asarray(0.0).dtype
    dtype = xp.float32 if xp.finfo(result_dtype).bits < 32 else result_dtype
    least, most = xp.finfo(dtype).smallest_normal, xp.finfo(dtype).max

    # Casting to the dtype may overflow or underflow. The clips keep each factor finite, and each divisor and
    # its reciprocal in the normal range (a compiler may multiply by the reciprocal and flush it to 0). So 0 *
    # inf, inf / inf and 0 / 0 never occur. A product may become inf; the weight of its action is then 0.
    if isinstance(sigma2, float):
        sigma2 = min(max(sigma2, least), most / 16)
    else:
        sigma2 = xp.where(sigma2 >= 0, xp.clip(xp.astype(sigma2, dtype), least, most / 16), xp.nan)
    if isinstance(booster, float):
        leader_weight = math.log(booster)
    else:
        leader_weight = xp.log(xp.where(booster >= 1, xp.clip(xp.astype(booster, dtype), max=most), xp.nan))

    warm = counts > 0 if mask is None else mask & (counts > 0)
    known = xp.where(warm, xp.astype(values, dtype, copy=False), -xp.inf)
    # Finite even if no action has a positive count.
    best = xp.clip(xp.max(known, axis=-1, keepdims=True), min=-most)
    gap = xp.where(warm, xp.clip(best - known, max=most), 0.0)
    pulls = xp.clip(xp.astype(counts, dtype, copy=False), 0.0, most)
    weight = xp.where(warm & (gap == 0), leader_weight, -gaussian_exponent(pulls, gap, sigma2))
    weight = weight if mask is None else xp.where(mask, weight, -xp.inf)
    weight = weight - xp.max(weight, axis=-1, keepdims=True)
    unnormalised = xp.exp(weight)
    total = xp.sum(unnormalised, axis=-1, keepdims=True)
    return xp.astype(weight - xp.log(total) if log else unnormalised / total, result_dtype, copy=False)


def _arrays(given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Check the arguments and convert them to arrays of one library; single numbers become floats."""
    foreign = {name: value for name, value in given.items() if not isinstance(value, _NUMPY_TYPES)}
    xp, place = _library(foreign) if foreign else (np, {})
    arrays: dict[str, Any] = {}
    shape: tuple[int, ...] = ()
    for name, value in given.items():
        try:
            arrays[name] = array = value if name in foreign else np.asarray(value)
        except ValueError:
            raise InvalidValue(name, value, "rows of equal length") from None
        types = "bool" if name == "mask" else ("integral", "real floating")
        if not (xp if name in foreign else np).isdtype(array.dtype, types):
            raise InvalidValue(name, value, "booleans" if name == "mask" else "real numbers")
        try:
            if array.shape not in {(), shape}:
                shape = np.broadcast_shapes(shape, tuple(array.shape))
        except ValueError:
            raise InvalidValue(name, tuple(array.shape), f"a shape that broadcasts against {shape}") from None
    if not shape or not shape[-1]:
        raise InvalidValue("values", shape, "a shape whose last axis has at least one action")

    host = {name: array for name, array in arrays.items() if name not in foreign}
    _check_numbers(host, with_values=foreign.keys().isdisjoint({"values", "counts", "mask"}))
    for name, array in host.items():
        if name in {"sigma2", "booster"} and not array.ndim:
            arrays[name] = float(array)
        elif foreign:  # a copy with a dtype and memory layout that every library accepts
            plain = np.array(array, np.bool_ if name == "mask" else np.float64, order="C")
            arrays[name] = xp.asarray(plain, **place)
    return xp, arrays


def _library(foreign: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the common library of these arrays, and the device for arrays that are created."""
    import array_api_compat

    try:
        xp = array_api_compat.array_namespace(*foreign.values())
    except TypeError:
        kinds = [type(array).__name__ for array in foreign.values()]
        raise InvalidValue(", ".join(foreign), kinds, "arrays of a single array-API library") from None
    # JAX moves new arrays when needed; the sharding of a batch may not fit smaller arrays.
    jax = array_api_compat.is_jax_namespace(xp)
    return xp, {} if jax else {"device": array_api_compat.device(next(iter(foreign.values())))}


def _check_numbers(host: dict[str, Any], *, with_values: bool) -> None:
    """Raise InvalidValue for an invalid number in a Python or NumPy argument."""

    def check(name: str, bad: Any, allowed: str) -> None:
        if bad.any():
            raise InvalidValue(name, np.broadcast_to(host[name], bad.shape)[bad][0].item(), allowed)

    if (sigma2 := host.get("sigma2")) is not None:
        check("sigma2", ~((sigma2 > 0) & np.isfinite(sigma2)), "a finite number > 0")
    if (booster := host.get("booster")) is not None:
        check("booster", ~((booster >= 1) & np.isfinite(booster)), "a finite number >= 1")
    if (counts := host.get("counts")) is not None:
        check("counts", ~(counts >= 0), "numbers >= 0")
    if (mask := host.get("mask")) is not None and not np.atleast_1d(mask).any(axis=-1).all():
        raise InvalidValue("mask", mask.tolist(), "at least one allowed action in each row")
    if with_values:
        counted = (host["counts"] > 0) & (True if mask is None else mask)
        bad = counted & ~np.isfinite(host["values"])
        check("values", bad, "finite values for actions with a positive count")
