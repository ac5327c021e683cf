"""`explore`: compared with a simple loop, in four array libraries, at dtype limits and with invalid input."""

from __future__ import annotations

import importlib
import math
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import array_api_strict
import numpy as np
import pytest

from maillard import InvalidValue, explore


class _Imported:
    """A module that is imported when a test first calls or reads what it has: torch and JAX take seconds."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)

    def asarray(self, *values: Any, **options: Any) -> Any:
        return importlib.import_module(self._name).asarray(*values, **options)


torch: Any = _Imported("torch")
jax: Any = _Imported("jax")
jnp: Any = _Imported("jax.numpy")
LIBRARIES: dict[str, Callable[..., Any]] = {
    "numpy": np.asarray,
    "torch": torch.asarray,
    "jax": jnp.asarray,
    "strict": array_api_strict.asarray,
}
MODULES = {"numpy": np, "torch": torch, "jax": jnp, "strict": array_api_strict}
INF, NAN = math.inf, math.nan


def plain(values: Any, counts: Any, sigma2: Any, booster: Any, mask: Any) -> Any:
    """A direct implementation of the formula for one row."""
    actions = [a for a in range(len(values)) if mask[a]]
    best = max((values[a] for a in actions if counts[a] > 0), default=None)
    weights = [0.0] * len(values)
    for a in actions:
        if counts[a] == 0:
            weights[a] = 1.0
        elif values[a] == best:
            weights[a] = booster
        else:
            weights[a] = math.exp(-counts[a] * (best - values[a]) ** 2 / (2 * sigma2))
    return [weight / math.fsum(weights) for weight in weights]


def batch(seed: int = 0, shape: tuple[int, ...] = (4, 25, 6)) -> Any:
    """Rows with ties, cold actions, all-cold rows and masks; values on a grid, exact in float32."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-4, 5, shape) / 8
    counts = rng.integers(0, 4, shape) * rng.integers(0, 9, shape) / 2
    counts[0, 0] = 0
    mask = rng.random(shape) < 0.7
    mask[..., -1] = True
    values[~mask] = rng.choice([NAN, INF, -INF, 7.0], (~mask).sum())
    cold = mask & (counts == 0)
    values[cold] = rng.choice([NAN, INF, -INF, 7.0], cold.sum())
    return values, counts, mask


def rows(values: Any, counts: Any, sigma2: Any, booster: Any, mask: Any) -> Any:
    flat = (array.reshape(-1, values.shape[-1]).tolist() for array in (values, counts, mask))
    return np.reshape(
        [plain(value, count, sigma2, booster, allowed) for value, count, allowed in zip(*flat, strict=True)],
        values.shape,
    )


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("sigma2", "booster"), [(0.25, 4.0), (1.0, 1.0), (3, 1000)])
def test_agrees_with_the_plain_loop(library: Any, sigma2: Any, booster: Any) -> None:
    values, counts, mask = batch()
    expected = rows(values, counts, sigma2, booster, mask)
    make = LIBRARIES[library]
    result = explore(make(values), make(counts), sigma2=sigma2, booster=booster, mask=make(mask))
    assert type(result) is type(make(values))
    single = str(result.dtype).endswith("float32")  # JAX's default
    result = np.asarray(result)
    # The exponent is at most 24 and is rounded four times: 48 eps. The exp, the sum and the division add ten.
    np.testing.assert_allclose(
        result, expected, rtol=60 * float(np.finfo("f4" if single else "f8").eps), atol=1e-37
    )
    assert not result[~mask].any()
    np.testing.assert_allclose(result.sum(-1), 1, rtol=6e-7 if single else 1e-15)  # six roundings
    logs = np.asarray(
        explore(make(values), make(counts), sigma2=sigma2, booster=booster, mask=make(mask), log=True)
    )
    assert (logs[~mask] == -INF).all()
    tolerance = 1e-5 if single else 1e-13
    np.testing.assert_allclose(logs[mask], np.log(expected[mask]), rtol=tolerance, atol=tolerance)


def test_without_a_mask_and_from_lists() -> None:
    expected = plain([0.5, 0.4, 0.5, NAN], [9, 2.5, 1, 0], 0.25, 4.0, [True] * 4)
    np.testing.assert_allclose(
        explore([0.5, 0.4, 0.5, NAN], [9, 2.5, 1, 0], sigma2=0.25), expected, rtol=1e-14
    )
    everything = explore([0.5, 0.4, 0.5, NAN], [9, 2.5, 1, 0], sigma2=0.25, mask=[True] * 4)
    np.testing.assert_array_equal(explore([0.5, 0.4, 0.5, NAN], [9, 2.5, 1, 0], sigma2=0.25), everything)


@pytest.mark.parametrize("library", LIBRARIES)
def test_known_values_with_cold_actions_ties_and_masks(library: Any) -> None:
    def probabilities(values: Any, counts: Any, mask: Any = None) -> Any:
        make = LIBRARIES[library]
        mask = None if mask is None else make(mask)
        return np.asarray(explore(make(values), make(counts), sigma2=1.0, mask=mask)).tolist()

    assert probabilities([1.0, 1.0, 9.0], [3, 40, 0]) == pytest.approx(
        [4 / 9, 4 / 9, 1 / 9]
    )  # the leaders tie
    assert probabilities([NAN, INF, -INF, 2.0], [0, 0, 0, 0]) == [0.25] * 4  # all cold
    assert probabilities([NAN, 1.0, 2.0, 3.0], [0, 0, 5, 0], [True, True, False, False]) == [0.5, 0.5, 0, 0]
    assert probabilities([5.0, 1.0], [9, 9], [False, True]) == [0, 1]  # the best action is masked
    assert probabilities([INF, 1.0, NAN], [7, 7, 7], [False, True, False]) == [0, 1, 0]
    assert probabilities([3.0], [0]) == [1]
    assert probabilities([3, 2], [1, 2]) == pytest.approx([4 / (4 + math.exp(-1)), 1 / (1 + 4 * math.e)])


@pytest.mark.parametrize("library", LIBRARIES)
def test_arguments_broadcast(library: Any) -> None:
    make = LIBRARIES[library]
    values, counts = [[0.0, 0.25, 0.5]], [[[1], [2]], [[0], [8]]]
    sigma2, booster, mask = [[0.25], [1.0]], [[[2.0]], [[3.0]]], [True, True, False]
    arrays = {"sigma2": make(sigma2), "booster": make(booster), "mask": make(mask)}
    result = np.asarray(explore(make(values), make(counts), **arrays))
    assert result.shape == (2, 2, 3)
    for i, j in np.ndindex(2, 2):
        expected = plain(values[0], counts[i][j] * 3, sigma2[j][0], booster[i][0][0], mask)
        assert result[i, j].tolist() == pytest.approx(expected, rel=1e-6)
    assert explore(make(np.empty((0, 2))), make([1, 1]), sigma2=1.0).shape == (0, 2)


def test_lists_and_numpy_arrays_with_an_array_of_another_library() -> None:
    expected = explore([0.5, 0.25, 0.0], [4, 2, 0], sigma2=0.25, mask=[True, True, False])
    for make in LIBRARIES.values():
        mixed = explore(
            make([0.5, 0.25, 0.0]), [4, 2, 0], sigma2=np.float64(0.25), mask=np.array([True, True, False])
        )
        assert type(mixed) is type(make([0.5]))
        np.testing.assert_allclose(np.asarray(mixed), expected, rtol=1e-6)
    assert (
        explore([0.5, 0.25], torch.tensor([4, 2]), sigma2=1.0).dtype == torch.float64
    )  # the dtype of the list


@pytest.mark.parametrize(
    ("library", "name"),
    [
        *(("numpy", dtype) for dtype in ("float16", "float32", "float64", "longdouble")),
        *(("torch", dtype) for dtype in ("float16", "bfloat16", "float32", "float64")),
        *(("jax", dtype) for dtype in ("float16", "bfloat16", "float32")),
        *(("strict", dtype) for dtype in ("float32", "float64")),
    ],
)
def test_the_dtype_of_values_is_kept_and_its_range_gives_no_nan(library: str, name: str) -> None:
    make, dtype = LIBRARIES[library], getattr(MODULES[library], name)
    expected = plain([1.0, 0.5, 0.0], [8, 4, 0], 0.5, 4.0, [True] * 3)
    values = make([1.0, 0.5, 0.0], dtype=dtype)
    precision = 8e-3 if "bfloat16" in str(dtype) else 1e-3 if "float16" in str(dtype) else 1e-6
    wide, scalar = LIBRARIES["torch" if library == "torch" else "numpy"], make([0.5], dtype=dtype)
    for sigma2 in (0.5, scalar, wide([0.5])):
        for log in (False, True):
            result = explore(values, [8, 4, 0], sigma2=sigma2, booster=4, log=log)
            assert result.dtype == values.dtype
            probabilities = [math.exp(x) if log else float(x) for x in result]
            assert probabilities == pytest.approx(expected, rel=precision)

    huge = float(np.finfo(np.float16).max) if "float16" in str(dtype) else 3e38
    tiny = 1e-37 if library == "jax" else 1e-300  # JAX flushes numbers below 1e-38 to 0
    values = make([1.0, 1.0, 0.5, -huge, huge, 0.0], dtype=dtype)
    mask = [True, True, True, True, False, True]
    for counts in (
        [70_000, 10**9, 10**9, 10**9, 10**9, 0],
        [1e300, 1e39, 1e300, 1e300, 1e300, 0],
        [INF, INF, INF, INF, INF, 0],
        [tiny, tiny, 1e300, 1e39, tiny, 0],
    ):
        result = [float(x) for x in explore(values, counts, sigma2=0.25, mask=mask)]
        assert result == pytest.approx([4 / 9, 4 / 9, 0, 0, 0, 1 / 9], rel=precision)
    for sigma2 in (1e-300, 1e-46, 1e300, 1e39, [1e-300], [1e300]):
        result = [
            float(x)
            for x in explore(values, [5, 1, 2, 1e-300, 1, 0], sigma2=sigma2, booster=1e300, mask=mask)
        ]
        assert result == pytest.approx([0.5, 0.5, 0, 0, 0, 0], abs=1e-30)
        assert not any(
            math.isnan(x) for x in explore(values, [5, 1, 2, 1, 1, 0], sigma2=sigma2, booster=[1e300])
        )


def test_the_gap_between_the_largest_and_smallest_float_does_not_overflow() -> None:
    for dtype in (np.float32, np.float64):
        most = np.finfo(dtype).max
        result = explore(np.array([most, -most, -most], dtype), [1, 1, 1e-300], sigma2=1.0)
        # A count of 1e-300 is 0 in float32, so the third action is cold.
        assert result.tolist() == [1, 0, 0] or result.tolist() == pytest.approx([0.8, 0, 0.2])


def test_integers_give_the_default_float() -> None:
    assert explore(np.array([1, 0]), np.array([1, 1]), sigma2=1).dtype == np.float64
    assert explore(torch.tensor([1, 0]), torch.tensor([1, 1]), sigma2=1).dtype == torch.float32
    assert explore(jnp.array([1, 0]), jnp.array([1, 1]), sigma2=1).dtype == jnp.float32
    ones = array_api_strict.asarray([1, 0])
    assert explore(ones, ones, sigma2=1).dtype == array_api_strict.float64


def test_the_device_of_values_is_kept() -> None:
    meta = torch.empty((5, 3), device="meta", dtype=torch.bfloat16)
    result = explore(meta, [1, 2, 3], sigma2=0.25, mask=[True, False, True])
    assert (result.device.type, result.dtype, result.shape) == ("meta", torch.bfloat16, (5, 3))
    device = array_api_strict.Device("device1")
    values = array_api_strict.asarray([1.0, 0.0], device=device)
    assert explore(values, [1, 2], sigma2=[0.25], booster=[2.0], mask=[True, True]).device == device
    assert explore(jnp.ones(3), jnp.ones(3), sigma2=1.0).device == jnp.ones(3).device
    assert explore(torch.ones(3), torch.ones(3), sigma2=1.0).device == torch.device("cpu")


def test_two_jax_devices_and_a_batch_spread_over_both() -> None:
    code = """if True:
        import jax, jax.numpy as jnp, numpy as np
        from maillard.exploration import explore
        spread = jax.NamedSharding(jax.make_mesh((2,), ("x",)), jax.P("x", None))
        values = jax.device_put(jnp.ones((4, 3)), spread)
        result = explore(values, [1, 2, 3], sigma2=0.25, mask=[True, False, True])
        assert len(result.sharding.device_set) == 2, result.sharding
        assert np.asarray(result).tolist() == [[0.5, 0, 0.5]] * 4, result
        second = jax.devices()[1]
        assert explore(jax.device_put(jnp.ones(3), second), [1, 2, 3], sigma2=0.25).device == second
        """
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_intermediate_result_is_nan() -> None:
    with jax.debug_nans(True):  # raises at the first NaN, even if it is discarded later
        assert explore(jnp.ones((2, 4)), jnp.zeros(4), sigma2=jnp.ones(1)).tolist() == [[0.25] * 4] * 2


@pytest.mark.parametrize("log", [False, True])
def test_jit_and_vmap_equal_eager(log: Any) -> None:
    values, counts, mask = (jnp.asarray(array) for array in batch(seed=1))
    sigma2, booster = jnp.asarray(0.25), jnp.asarray(4.0)

    def one(values: Any, counts: Any, mask: Any, sigma2: Any, booster: Any) -> Any:
        return explore(values, counts, sigma2=sigma2, booster=booster, mask=mask, log=log)

    eager = explore(values, counts, sigma2=0.25, mask=mask, log=log)
    assert not jnp.isnan(eager).any()
    compiled = jax.jit(one)(values, counts, mask, sigma2, booster)
    axes = (0, 0, 0, None, None)
    mapped = jax.vmap(jax.vmap(one, axes), axes)(values, counts, mask, sigma2, booster)
    closed = jax.jit(lambda values: explore(values, counts, sigma2=0.25, mask=mask, log=log))(values)
    for traced in (compiled, mapped, closed):
        np.testing.assert_allclose(traced, eager, rtol=1e-5, atol=1e-37)


def test_gradients_are_those_of_the_formula() -> None:
    values, counts, mask = [0.5, 0.25, NAN, INF, 0.375], [4, 3, 0, 5, 2], [True, True, True, False, True]

    def second(x: Any) -> Any:  # the probability of action 1 when its value is x
        return plain([0.5, x, NAN, INF, 0.375], counts, 0.25, 4.0, mask)[1]

    slope = (second(0.25 + 1e-6) - second(0.25 - 1e-6)) / 2e-6
    of_jax = jax.grad(lambda values: explore(values, counts, sigma2=0.25, mask=mask)[1])(jnp.asarray(values))
    of_torch = torch.tensor(values, requires_grad=True)
    explore(of_torch, torch.tensor(counts), sigma2=0.25, mask=torch.tensor(mask))[1].backward()
    for gradient in (of_jax, of_torch.grad):
        assert float(gradient[1]) == pytest.approx(slope, rel=1e-4)
        assert [float(gradient[2]), float(gradient[3])] == [0, 0]


@pytest.mark.parametrize("library", ["torch", "jax", "strict"])
def test_invalid_numbers_that_are_not_checked_give_nan_only_in_their_row(library: Any) -> None:
    make = LIBRARIES[library]
    values, counts = [[0.5, 0.25]] * 3, [[1, 1]] * 3

    def bad_rows(
        *, values: Any = values, counts: Any = counts, sigma2: Any = 1.0, booster: Any = 4.0, mask: Any = True
    ) -> Any:
        arrays = {"sigma2": make(sigma2), "booster": make(booster), "mask": make(mask)}
        return np.isnan(np.asarray(explore(make(values), make(counts), **arrays))).all(-1).tolist()

    assert bad_rows() == [False, False, False]
    assert bad_rows(mask=[[True, True], [False, False], [True, False]]) == [False, True, False]
    assert bad_rows(values=[[0.5, NAN], [INF, 0.25], [0.5, -INF]]) == [True, True, False]
    assert bad_rows(sigma2=[[0.0], [-1.0], [NAN]]) == [False, True, True]
    assert bad_rows(booster=[[0.0], [0.5], [NAN]]) == [True, True, True]
    assert bad_rows(counts=[[1.0, -1.0], [NAN, NAN], [INF, 1.0]]) == [False, True, False]


GOOD: dict[str, Any] = {
    "values": [0.5, 0.25, 0.0],
    "counts": [4, 2, 1],
    "sigma2": 0.25,
    "booster": 4.0,
    "mask": [True, True, False],
}
BAD: dict[str, list[Any]] = {
    "sigma2": [0, 0.0, -1.0, INF, NAN, None, "1", True, 1j, [0.25, -1, 1], [1, 2], np.array(0.0)],
    "booster": [0.99, 0, -4, INF, NAN, None, "4", 4j, [4.0, 0.5, 1], [1.0, 2.0]],
    "counts": [[1, -1, 1], [1, NAN, 1], [1, 1, -INF], [1, 2], [True] * 3, [1j] * 3, ["a"] * 3, None],
    "values": [[NAN, 1, 0], [1, INF, 0], [1, -INF, 0], [1j] * 3, ["a"] * 3, None, [[1, 2], [3]]],
    "mask": [[1, 0, 1], [1.0, 0, 1], "yes", [False] * 3, [[True] * 3, [False] * 3], [True, True], False],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field in BAD for value in BAD[field]])
def test_bad_input_is_named(field: Any, value: Any) -> None:
    explore(**GOOD)
    with pytest.raises(InvalidValue) as caught:
        explore(**GOOD | {field: value})
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: expected ")


def test_errors_name_the_invalid_number() -> None:
    with pytest.raises(InvalidValue, match=r"^counts: expected numbers >= 0, got -3\.5$"):
        explore([[1, 2], [3, 4]], [[1, 1], [1, -3.5]], sigma2=1)
    with pytest.raises(
        InvalidValue, match=r"^values: expected finite values for actions with a positive count, got nan$"
    ):
        explore([0.5, NAN], [[0, 0], [1, 2]], sigma2=1)
    with pytest.raises(
        InvalidValue, match=r"^counts: expected a shape that broadcasts against \(2,\), got \(3,\)$"
    ):
        explore([1, 2], [1, 2, 3], sigma2=1)


@pytest.mark.parametrize(("values", "counts"), [([], []), (1.0, 1), (np.empty((4, 0)), 1)])
def test_values_without_actions_are_refused(values: Any, counts: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^values: .*at least one action"):
        explore(values, counts, sigma2=1)


@pytest.mark.parametrize("library", ["torch", "jax", "strict"])
def test_checks_that_apply_to_every_library(library: str) -> None:
    make = LIBRARIES[library]
    values, counts = make([0.5, 0.25]), make([1, 2])
    on_the_host = {
        "sigma2": -1.0,
        "booster": 0.5,
        "counts": [1, -1],
        "mask": [False, False],
    }  # NumPy and Python numbers are checked
    for field, value in on_the_host.items():
        with pytest.raises(InvalidValue) as caught:
            explore(**{"values": values, "counts": counts, "sigma2": 1.0} | {field: value})
        assert caught.value.field == field
    for field, value in {
        "mask": [1, 0],
        "counts": [1, 2, 3],
        "sigma2": [1.0, 2.0, 3.0],
        "values": [],
    }.items():
        with pytest.raises(InvalidValue) as caught:
            explore(**{"values": values, "counts": counts, "sigma2": 1.0} | {field: make(value)})
        assert caught.value.field == ("counts" if field == "values" else field)  # the first mismatch


def test_arrays_of_two_libraries_or_of_none_are_refused() -> None:
    with pytest.raises(
        InvalidValue, match=r"^values, counts: expected arrays of a single array-API library, got \['Tensor'"
    ):
        explore(torch.ones(2), jnp.ones(2), sigma2=1)
    with pytest.raises(
        InvalidValue, match=r"^counts: expected arrays of a single array-API library, got \['set'\]$"
    ):
        explore([1.0, 2.0], {1, 2}, sigma2=1)


def test_numpy_requires_no_other_library() -> None:
    code = """if True:
        import sys, numpy as np
        from maillard.exploration import explore
        mask = np.array([True, False])
        explore(np.array([[0.5, 0.25]]), np.array([1, 2]), sigma2=0.25, booster=np.float64(2), mask=mask)
        explore([1, 2], (3, 4), sigma2=1, log=True)
        print([name for name in ("array_api_compat", "torch", "jax") if name in sys.modules])
        """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_numpy_counts_with_values_of_another_library() -> None:
    """Accepts counts beyond 32 bits, read-only, reversed, big-endian or unsigned."""
    counts = np.array([10, 3 * 10**9])
    expected = explore(np.array([0.5, 0.4]), counts, sigma2=0.25)
    read_only = counts.copy()
    read_only.flags.writeable = False
    for given in (counts, read_only, counts[::-1][::-1], counts.astype(">i8"), counts.astype(np.uint32)):
        for values in (jnp.array([0.5, 0.4]), torch.tensor([0.5, 0.4])):
            p = np.asarray(explore(values, given, sigma2=0.25))
            np.testing.assert_allclose(p, expected, atol=1e-6)
