"""The formulas are pure and elementwise: compiled for scalars by numba, they return the same numbers."""

from __future__ import annotations

import gc
import inspect
import math
import os
import subprocess
import sys
import types
import warnings
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.codegen import JITCodeLibrary
from numba.core.registry import cpu_target

import maillard
from maillard import Policy, real
from maillard.simulation import SlowFormula, compiling, policy_formulas
from maillard.simulation.engines import leader_runs
from maillard.simulation.formula_callbacks import C_FORMULA
from maillard.simulation.inner_functions import OuterFunctionCompiler
from tests.conftest import NAMES, VARIANTS, make

GIVEN = {
    "n": np.array([8.0, 4.0, 16.0]),
    "t": 29.0,
    "mean": np.array([0.25, 0.5, 0.625]),
    "best": 0.75,
    "pooled": np.array([20.0, 12.0, 28.0]),
    "k": 3.0,
    "s": np.array([2.0, 2.0, 10.0]),
    "up": 1.0,
}


def evaluate(policy: Policy, name: str, arity: int, part: int, arguments: list[float]) -> float:
    address, alive = compiling.address_of(policy, name, arity, part)
    parameters = compiling.parameters_of(policy)
    padded = [*arguments, *[0.0] * (5 - len(arguments))]
    assert alive is not None
    return float(C_FORMULA(address)(parameters.ctypes.data, *padded))


@pytest.mark.parametrize("spec", [*NAMES, *VARIANTS])
def test_formulas_compile_to_the_same_numbers(spec) -> None:
    policy = make(spec)
    shape = policy_formulas.engine_shape(policy)
    assert shape is not None
    for name, arity, part in policy_formulas.FORMULAS[shape]:
        formula = getattr(type(policy), name)
        names = formula.__code__.co_varnames[1 : 1 + arity]
        with np.errstate(all="ignore"):
            value = formula(policy, *(GIVEN[each] for each in names))
        vector = np.broadcast_to(value if part < 0 else value[part], 3)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # none of maillard's formulas may fall back to Python
            for arm in range(3):
                scalars = [float(np.broadcast_to(GIVEN[each], 3)[arm]) for each in names]
                found = evaluate(policy, name, arity, part, scalars)
                assert found == pytest.approx(vector[arm], rel=1e-13, abs=1e-300)


@pytest.mark.parametrize("spec", [spec for spec in [*NAMES, *VARIANTS] if make(spec).monotone])
def test_declarations_about_formulas_are_true(spec) -> None:
    """`monotone`, `concentrates`, `uses_best` and `uses_round`, which the lazy engines need to be exact."""
    policy = make(spec)
    rng = np.random.default_rng(7)
    count = 4000
    n = np.floor(np.exp(rng.uniform(0, 9, count)))
    t = n + np.floor(np.exp(rng.uniform(0, 9, count))) + 1.0
    later = t + np.floor(np.exp(rng.uniform(0, 9, count)))
    mean, best, higher = np.sort(rng.uniform(0.001, 0.999, (3, count)), axis=0)
    slack = 1e-9
    with np.errstate(all="ignore"):
        if isinstance(policy, maillard.Sampled):
            rival = policy.rival(n, mean, best, t) + 0.0 * n
            leader = policy.leader(n, t) + 0.0 * n
            tolerance = slack * (1 + np.abs(rival))
            assert (policy.rival(n, mean, higher, t) <= rival + tolerance).all()
            assert (policy.rival(n, mean, best, later) <= rival + tolerance).all()
            assert (rival <= leader + slack).all()
            assert (policy.leader(n, later) >= leader - slack).all()
            assert (policy.leader(n + 1, t + 1) <= policy.leader(n, t + 1) + slack).all()
            assert policy.concentrates
            more, lower = n + np.floor(np.exp(rng.uniform(0, 5, count))), mean * rng.random(count)
            assert (policy.rival(more, mean, best, t) <= rival + tolerance).all()
            assert (policy.rival(n, lower, best, t) <= rival + tolerance).all()
        else:
            assert isinstance(policy, maillard.Indexed)
            index = policy.index(n, mean, best, t, 5) + 0.0 * n
            last = later + np.floor(np.exp(rng.uniform(0, 9, count)))
            ahead, end = policy.index(n, mean, best, later, 5), policy.index(n, mean, best, last, 5)
            tolerance = slack * (1 + np.abs(index))
            assert (
                ((index <= ahead + tolerance) & (ahead <= end + tolerance))
                | ((index >= ahead - tolerance) & (ahead >= end - tolerance))
            ).all()
            assert (policy.index(n, mean, higher, t, 5) <= index + tolerance).all()
            if not policy.uses_round:
                assert (ahead == index).all()
            if not policy.uses_best:
                assert (policy.index(n, mean, higher, t, 5) == index).all()


def test_overriding_a_formula_removes_its_declaration() -> None:
    class Changed(maillard.MaillardSampling):
        def rival(self, n, mean, best, t):
            return -n * (best - mean)

    class Same(maillard.MaillardSampling):
        pass

    assert maillard.MaillardSampling.monotone
    assert Same.monotone
    assert not Changed.monotone
    assert maillard.MaillardSampling.concentrates
    assert Same.concentrates
    assert not Changed.concentrates


def test_a_formula_that_numba_cannot_compile_runs_as_python() -> None:
    class Odd(maillard.Sampled):
        sigma2: float = real("variance", default=0.25)

        def rival(self, n, mean, best, t):
            return float(str(-n * (best - mean) ** 2 / (2 * self.sigma2)))

    with pytest.warns(SlowFormula, match="Odd.rival runs as Python"):
        value = evaluate(Odd(), "rival", 4, -1, [4.0, 0.5, 0.75, 9.0])
    assert value == -0.5


def test_fingerprints_cover_every_called_function_and_constant() -> None:
    def make_pair(constant):
        space: dict[str, object] = {"LIMIT": constant}
        exec("def inner(x):\n    return x + LIMIT\ndef outer(x):\n    return inner(x)", space)
        return space["outer"]

    one, same, other = make_pair(1), make_pair(1), make_pair(2)
    assert isinstance(one, types.FunctionType)
    assert compiling.fingerprint_of(one) == compiling.fingerprint_of(same)
    assert compiling.fingerprint_of(one) != compiling.fingerprint_of(other)


def test_fingerprints_cover_the_code_of_intrinsics(monkeypatch) -> None:
    functions = leader_runs.count_successes, leader_runs.rounds_before  # only the first calls an intrinsic
    before = [compiling.fingerprint_of(each) for each in functions]
    monkeypatch.setattr(inspect, "getsource", lambda module: f"another {module.__name__}")
    same = [compiling.fingerprint_of(each) == old for each, old in zip(functions, before, strict=True)]
    assert same == [False, True]


def test_other_functions_can_call_what_was_linked_into_a_loop() -> None:
    """Numba keeps the functions of its own that it compiled for the loop."""
    signature = numba.float64(compiling.NUMBERS)
    loop = numba.njit(signature, pipeline_class=OuterFunctionCompiler)(lambda x: np.median(x))  # noqa: PLW0108
    later = numba.njit(signature)(lambda x: np.median(x) + np.std(x))
    numbers = np.array([3.0, 1.0, 2.0, 2.0])
    assert loop(numbers) == 2.0
    assert later(numbers) == pytest.approx(2.0 + math.sqrt(0.5))


def test_a_loop_that_numba_cannot_compile_changes_nothing_for_others() -> None:
    with pytest.raises(numba.TypingError):
        numba.njit(numba.float64(numba.float64), pipeline_class=OuterFunctionCompiler)(lambda x: x.missing)
    assert type(cpu_target.target_context.codegen().create_library("other")) is JITCodeLibrary
    assert gc.isenabled()


CACHED = """
import maillard
from maillard.simulation import compiling, policy_formulas
policy = maillard.policy("ms+:booster={booster}", sigma2=0.25)
formulas = policy_formulas.FORMULAS["sampled"]
hits = [compiling.address_of(policy, *formula)[1].cache_hits for formula in formulas]
print(hits)
"""


def test_compiled_formulas_are_cached_for_other_processes(tmp_path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    found = []
    for booster in (4, 8):  # parameters are not part of the compiled code
        command = [sys.executable, "-c", CACHED.format(booster=booster)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found.append(done.stdout.strip())
    assert found == ["[0, 0, 0]", "[1, 1, 1]"]


SCALES = {"wide": 2.0}


def with_import(n: Any, mean: Any) -> Any:
    import math

    return mean + math.pi / np.sqrt(n)


def with_dictionary(n: Any, mean: Any) -> Any:
    return mean + SCALES["wide"] / np.sqrt(n)


def with_format(n: Any, mean: Any) -> Any:
    return mean + float(f"{2.0:.1f}") / np.sqrt(n)


def with_handler(n: Any, mean: Any) -> Any:
    try:
        return mean + 1 / np.sqrt(n)
    except ZeroDivisionError:
        return mean


def with_generator(n: Any, mean: Any) -> Any:
    return mean + sum(scale * 1.0 for scale in (1.0, 2.0)) / np.sqrt(n)


def with_combinations(n: Any, mean: Any) -> Any:
    return mean + math.comb(4, 2) / np.sqrt(n)


UNSUPPORTED = [with_import, with_dictionary, with_format, with_handler, with_generator, with_combinations]


@pytest.mark.parametrize("bonus", UNSUPPORTED)
def test_a_formula_that_numba_cannot_compile_runs_as_python_with_a_warning(bonus) -> None:
    class Uncompilable(maillard.policies.Indexed):
        def index(self, n: Any, mean: Any, best: Any, t: Any, k: Any) -> Any:
            return bonus(n, mean)

    with pytest.warns(SlowFormula, match=r"index runs as Python.*: \w+") as caught:
        result = maillard.simulate(Uncompilable(), "bernoulli:0.6,0.4", 40, 3, seed=2)
    assert "\n" not in str(caught[0].message)
    plain = maillard.simulate(Uncompilable(), "bernoulli:0.6,0.4", 40, 3, seed=2, engine="plain")
    assert result.pulls.sum() == plain.pulls.sum() == 120


def test_a_list_comprehension_over_a_closure_compiles(recwarn) -> None:
    class Comprehension(maillard.policies.Indexed):
        def index(self, n: Any, mean: Any, best: Any, t: Any, k: Any) -> Any:
            scale = 2.0
            return mean + sum([scale * each for each in (1.0, 2.0)]) / np.sqrt(n)

    maillard.simulate(Comprehension(), "bernoulli:0.6,0.4", 40, 3, seed=2)
    assert not [each for each in recwarn if each.category is SlowFormula]


def test_threads_may_compile_different_loops_at_the_same_time(tmp_path) -> None:
    """In a new process without a cache, where all functions are registered for the first time."""
    code = (
        "import threading, maillard\n"
        "failed = []\n"
        "def run(spec, text):\n"
        "    try: maillard.simulate(spec, text, 50, 2, seed=0)\n"
        "    except BaseException as error: failed.append(error)\n"
        "plans = [('ms:sigma2=1', 'poisson:2,1.5'), ('ts-bernoulli', 'bernoulli:0.5,0.4')]\n"
        "threads = [threading.Thread(target=run, args=plan) for plan in plans]\n"
        "[each.start() for each in threads]; [each.join() for each in threads]\n"
        "assert not failed, failed\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=300)
