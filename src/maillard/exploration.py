"""Exploration over Q-values and visit counts: the paper's replacement for the Boltzmann (softmax) rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from maillard.errors import InvalidValue
from maillard.policies.numerics.families import gaussian_exponent

__all__ = ["explore"]

# What NumPy reads by itself; anything else is to be another library's array.
_HOST = (np.ndarray, np.generic, int, float, Sequence, type(None))


@np.errstate(over="ignore", under="ignore", invalid="ignore")  # what overflows is meant to: see below
def explore(
    values: Any, counts: Any, *, sigma2: Any, booster: Any = 4.0, mask: Any = None, log: bool = False
) -> Any:
    """Probabilities of the actions along the last axis, batched over the axes before it.

        p_a  proportional to  B^[a is a leader] exp(-N_a d_a^2 / (2 sigma2)),    d_a = best value - value of a

    `values` are estimates, `counts` (N) how many observations each rests on (fractions are fine), `sigma2` the variance
    proxy of one observation, `booster` (B >= 1) the weight of a leader, `mask` is True where an action is allowed; all
    broadcast. The best value is over allowed actions with a count above 0, and each action that attains it is a leader.
    An allowed action with count 0 weighs 1 whatever its value; one that is not allowed has probability 0, whatever
    its value. With `log=True`, log probabilities: -inf where not allowed, or below the range of the dtype.

    Any array-API library will do (NumPy, PyTorch, JAX, CuPy, ...): the result has the library, device and dtype of
    `values`, or the library's default float if they are integers. Half precision is computed in float32. Types and
    shapes are always checked; numbers only where NumPy or Python holds them, so this traces under `jax.jit`. Elsewhere
    a row with no allowed action comes out as NaN, as does one with a NaN count, a NaN or +inf value where the count is
    above 0, a negative `sigma2` or a `booster` below 1; a negative count is taken as 0.

    Reference: Bian and Jun, "Maillard Sampling: Boltzmann Exploration Done Optimally" (2022), the conclusion's
    equation, with the N that its print lacks (MS+ with C = D = 0).

    >>> explore([0.5, 0.4, 0.0], [100, 25, 0], sigma2=0.25).round(3)
    array([0.713, 0.108, 0.178])
    """
    given = {"values": values, "counts": counts, "sigma2": sigma2, "booster": booster}
    xp, given = _arrays(given if mask is None else given | {"mask": mask})
    values, counts, sigma2, booster = (given[name] for name in ("values", "counts", "sigma2", "booster"))
    mask = given.get("mask")
    kept = values.dtype if xp.isdtype(values.dtype, "real floating") else xp.asarray(0.0).dtype
    dtype = xp.float32 if xp.finfo(kept).bits < 32 else kept
    least, most = xp.finfo(dtype).smallest_normal, xp.finfo(dtype).max

    # A number may overflow or underflow where it is cast to the dtype. The clips keep each factor finite and each
    # divisor, and its reciprocal, in the normal range (a compiler may multiply by that, and flush it to 0), so that
    # neither 0 * inf, nor inf / inf, nor 0 / 0 is ever computed. A product may reach inf: its action then weighs 0.
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
    best = xp.clip(xp.max(known, axis=-1, keepdims=True), min=-most)  # finite even where nothing is warm
    gap = xp.where(warm, xp.clip(best - known, max=most), 0.0)
    pulls = xp.clip(xp.astype(counts, dtype, copy=False), 0.0, most)
    weight = xp.where(warm & (gap == 0), leader_weight, -gaussian_exponent(pulls, gap, sigma2))
    weight = weight if mask is None else xp.where(mask, weight, -xp.inf)
    weight = weight - xp.max(weight, axis=-1, keepdims=True)
    share = xp.exp(weight)
    total = xp.sum(share, axis=-1, keepdims=True)
    return xp.astype(weight - xp.log(total) if log else share / total, kept, copy=False)


def _arrays(given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the library to compute with and the arguments, checked, as its arrays (a lone number: a float)."""
    foreign = {name: value for name, value in given.items() if not isinstance(value, _HOST)}
    xp, place = _library(foreign) if foreign else (np, {})
    arrays: dict[str, Any] = {}
    shape: tuple[int, ...] = ()
    for name, value in given.items():
        try:
            arrays[name] = array = value if name in foreign else np.asarray(value)
        except ValueError:
            raise InvalidValue(name, value, "rows of one length") from None
        kinds, allowed = (
            ("bool", "booleans") if name == "mask" else (("integral", "real floating"), "real numbers")
        )
        if not (xp if name in foreign else np).isdtype(array.dtype, kinds):
            raise InvalidValue(name, value, allowed)
        try:
            shape = (
                np.broadcast_shapes(shape, tuple(array.shape)) if array.shape not in {(), shape} else shape
            )
        except ValueError:
            raise InvalidValue(name, tuple(array.shape), f"a shape that broadcasts against {shape}") from None
    if not shape or not shape[-1]:
        raise InvalidValue("values", shape, "a shape whose last axis holds at least one action")

    host = {name: array for name, array in arrays.items() if name not in foreign}
    _inspect(host, with_values=foreign.keys().isdisjoint({"values", "counts", "mask"}))
    for name, array in host.items():
        lone = name in {"sigma2", "booster"} and not array.ndim
        if lone:
            arrays[name] = float(array)
        elif foreign:  # a copy, as numbers that no other library wraps or refuses
            plain = np.array(array, np.bool_ if name == "mask" else np.float64, order="C")
            arrays[name] = xp.asarray(plain, **place)
    return xp, arrays


def _library(foreign: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the one library of these arrays, and where to place those that join them."""
    import array_api_compat

    try:
        xp = array_api_compat.array_namespace(*foreign.values())
    except TypeError:
        kinds = [type(array).__name__ for array in foreign.values()]
        raise InvalidValue(", ".join(foreign), kinds, "arrays of one array-API library") from None
    # JAX itself moves what has no place yet, and the place of a batch may be a layout that fits no smaller array.
    jax = array_api_compat.is_jax_namespace(xp)
    return xp, {} if jax else {"device": array_api_compat.device(next(iter(foreign.values())))}


def _inspect(host: dict[str, Any], *, with_values: bool) -> None:
    """Refuse bad numbers among the arguments that NumPy holds."""

    def refuse(name: str, bad: Any, allowed: str) -> None:
        if bad.any():
            raise InvalidValue(name, np.broadcast_to(host[name], bad.shape)[bad][0].item(), allowed)

    if (sigma2 := host.get("sigma2")) is not None:
        refuse("sigma2", ~((sigma2 > 0) & np.isfinite(sigma2)), "a finite number > 0")
    if (booster := host.get("booster")) is not None:
        refuse("booster", ~((booster >= 1) & np.isfinite(booster)), "a finite number >= 1")
    if (counts := host.get("counts")) is not None:
        refuse("counts", ~(counts >= 0), "numbers >= 0")
    if (mask := host.get("mask")) is not None and not np.atleast_1d(mask).any(axis=-1).all():
        raise InvalidValue("mask", mask.tolist(), "at least one allowed action in each row")
    if with_values:
        counted = (host["counts"] > 0) & (True if mask is None else mask)
        refuse("values", counted & ~np.isfinite(host["values"]), "finite values where the count is above 0")
