"""Problems with contexts: their rows and rewards, specs that round-trip, and refusals that name the fix."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from maillard import InvalidValue, UnknownName, problems
from maillard.feature_grid import STEPS
from maillard.problems import (
    Bernoulli,
    Classification,
    ContextBlock,
    ContextualProblem,
    Linear,
    Segmented,
    codes,
)

SPECS = [
    "linear:arms=10,dim=5",
    "linear:arms=3,dim=2,model=shared,noise=bernoulli,redraw=false,rows=gaussian",
    "linear:arms=4,bound=3,dim=2,rows=gaussian,variance=2",
    "sphere:arms=500,dim=2",
    "end-of-optimism:eps=0.005",
    "segmented:a='bernoulli:0.1,0.2',b='bernoulli:0.3,0.2',weights=0.25/0.75",
]
ROWS = np.linspace(-1, 1, 12).reshape(6, 2)


def whole(problem: ContextualProblem, horizon: int, seed: int = 0) -> list[ContextBlock]:
    return list(problem.contexts(np.random.default_rng(seed), horizon))


@pytest.mark.parametrize("spec", SPECS)
def test_specs_round_trip(spec) -> None:
    made = problems.problem(spec)
    assert str(made) == spec
    assert problems.problem(str(made)) == made == pickle.loads(pickle.dumps(made))
    assert hash(problems.problem(spec)) == hash(made)
    assert made.contextual
    assert spec.partition(":")[0] in problems.names()


@pytest.mark.parametrize(
    "problem",
    [
        *SPECS,
        Linear(rows=ROWS, arms=3),
        Linear(rows=ROWS, model="shared"),
        Linear(rows=7 * ROWS.reshape(3, 2, 2), bound=7, model="shared"),
        Classification(ROWS, [0, 1, 2, 0, 1, 2]),
    ],
)
def test_blocks_have_rows_on_the_grid_and_the_rounds_of_the_horizon(problem) -> None:
    made = problems.problem(problem)
    assert isinstance(made, ContextualProblem)
    blocks = whole(made, 2500)
    assert sum(block.row.size for block in blocks) == 2500
    for block in blocks:
        assert block.rows.shape[1:] == ((made.arms, made.dim) if made.shared else (made.dim,))
        assert (np.abs(block.rows) <= 1).all()
        assert (block.rows * STEPS == np.rint(block.rows * STEPS)).all()
        assert block.means.shape[1] == made.arms
        assert block.rewards.first.size == block.means.size
        assert block.row.max() < len(block.rows)
        assert block.mean.max() < len(block.means)
        assert block.row.size == block.mean.size == block.segment.size
    again = whole(made, 2500)
    assert all(np.array_equal(a.rows, b.rows) for a, b in zip(blocks, again, strict=True))


@pytest.mark.parametrize("model", ["disjoint", "shared"])
def test_means_are_linear_in_the_rows(model) -> None:
    theta = np.array([0.5, -0.25]) if model == "shared" else np.array([[0.5, -0.25], [0.1, 0.4], [0, 0]])
    problem = Linear(model=model, arms=3, coefficients=theta, centre=0.3, variance=4.0)
    (block,) = whole(problem, 50)
    expected = 0.3 + (block.rows @ theta if model == "shared" else block.rows @ theta.T)
    # The means follow from the rows before rounding to the grid.
    np.testing.assert_allclose(block.means, expected, atol=2 / STEPS)
    assert block.rewards.code == codes.GAUSSIAN
    assert (block.rewards.second == 2.0).all()
    assert problem.sigma2 == 4.0


def test_rows_and_coefficients_have_the_declared_lengths() -> None:
    (sphere,) = whole(Linear(arms=2, dim=3, norm=0.7), 400)
    lengths = np.linalg.norm(sphere.rows, axis=1)
    np.testing.assert_allclose(lengths, 1.0, atol=3 / STEPS)
    assert np.abs(sphere.means - 0.5).max() <= 0.7
    (gaussian,) = whole(Linear(arms=2, dim=3, rows="gaussian"), 400)
    assert np.linalg.norm(gaussian.rows, axis=1).max() <= 1 + 3 / STEPS
    assert abs(gaussian.rows.std() * 2 * np.sqrt(3) - 1) < 0.1  # 1,200 entries
    (fixed,) = whole(problems.problem("sphere:arms=7,dim=2"), 30)
    assert fixed.rows.shape == (1, 7, 2)
    assert (fixed.row == 0).all()


def test_end_of_optimism() -> None:
    (block,) = whole(problems.problem("end-of-optimism:eps=0.25"), 5)
    assert block.rows[0].tolist() == [[1, 0], [0, 1], [0.75, 0.5]]
    assert block.means.tolist() == [[1, 0, 0.75]]


def test_classification_shows_every_row_once_in_each_pass() -> None:
    y = ["b", "a", "b", "c", "a", "b"]
    problem = Classification(ROWS, y, segments=["x", "y"] * 3)
    (block,) = whole(problem, 15)
    assert problem.labels == ("a", "b", "c")
    assert sorted(block.row[:6]) == sorted(block.row[6:12]) == list(range(6))
    assert block.row[:6].tolist() != whole(problem, 15, seed=1)[0].row[:6].tolist()
    for row, mean, segment in zip(block.row, block.mean, block.segment, strict=True):
        assert problem.labels[block.means[mean].argmax()] == y[row]
        assert block.means[mean].sum() == 1
        assert problem.segments[segment] == "xy"[row % 2]
    assert (block.rows[:, 0] == 1).all()  # the intercept
    assert Classification(ROWS, y, intercept=False).dim == 2
    assert problem != Classification(ROWS[::-1], y)
    assert str(problem) != str(Classification(ROWS[::-1], y))


def test_segments_have_their_weights_and_their_problems() -> None:
    problem = Segmented({"b": "bernoulli:0.1,0.2", "a": Bernoulli([0.3, 0.4])}, weights={"a": 3, "b": 1})
    assert problem.segments == ("a", "b")
    assert problem.weights == (0.75, 0.25)
    block = whole(problem, 1000)[0]
    assert block.means.tolist() == [[0.3, 0.4], [0.1, 0.2]]
    assert block.rewards.first.tolist() == [0.3, 0.4, 0.1, 0.2]
    # 1000 rounds: five standard deviations.
    assert abs(np.mean(block.segment == 0) - 0.75) < 5 * np.sqrt(0.75 * 0.25 / 1000)
    assert np.array_equal(block.rows[block.row], np.eye(2)[block.segment])
    levels = Segmented({"a": "bounded:0.5/0.5,0/1,values=0/2", "b": "bounded:1/0,0.5/0.5,values=0/3"})
    assert levels.support == (0, 3)
    assert whole(levels, 3)[0].rewards.values.shape == (4, 2)


BAD_ROWS = [[0.5, 2.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Linear(arms=0), "arms: expected a whole number from 1"),
        (lambda: Linear(dim=257), "dim: expected a whole number from 1 to 256"),
        (lambda: Linear(dim=2.5), "dim: expected a whole number"),
        (lambda: Linear(model="both"), "model: expected disjoint or shared"),
        (lambda: Linear(rows="cube"), "rows: expected gaussian, sphere, or an array"),
        (lambda: Linear(noise="none"), "noise: expected gaussian or bernoulli"),
        (lambda: Linear(redraw=1), "redraw: expected true or false"),
        (lambda: Linear(variance=-1), "variance: expected a finite number >= 0"),
        (lambda: Linear(rows=BAD_ROWS, model="shared"), r"rows\[0\]\[1\]: .* otherwise pass bound="),
        (
            lambda: Linear(rows=BAD_ROWS, model="shared", bound=1.5),
            r"rows\[0\]\[1\]: expected a number from -1.5",
        ),
        (lambda: Linear(rows=[[np.nan]]), r"rows\[0\]\[0\]: expected a number from -1 to 1"),
        (
            lambda: Linear(rows=np.zeros((2, 3, 4))),
            "rows: shape: expected an array of numbers: contexts x features",
        ),
        (lambda: Linear(rows=np.zeros((0, 2))), "rows: shape"),
        (lambda: Linear(rows=[[1, 0], [1]]), "rows: expected an array of numbers"),
        (
            lambda: Linear(rows=np.zeros((2, 257))),
            "number of features: expected a whole number from 1 to 256",
        ),
        (lambda: Linear(rows=ROWS, dim=3), "dim: expected 2, as in the array"),
        (lambda: Linear(rows=ROWS, model="shared", arms=3), "arms: expected 6, as in the array"),
        (lambda: Linear(coefficients=[1, 2, 3]), "coefficients: expected 10 x 3 finite numbers"),
        (lambda: Linear(coefficients=[[np.inf]]), "coefficients: expected 1 x 1 finite numbers"),
        (lambda: Linear(noise="bernoulli", norm=0.6), "at most 0.5 around the centre 0.5"),
        (lambda: Linear(delay="fixed:3"), "delay: expected None"),
        (lambda: Linear(threshold=0.5), "threshold: expected None"),
        (lambda: Linear().true_means, "a problem without contexts"),
        (lambda: Classification(ROWS, [0, 1]), "y: expected one value for each of 6 rows"),
        (lambda: Classification([[0.5, 3.0]], [1]), r"X\[0\]\[1\]: .* pass bound="),
        (lambda: Classification(ROWS, [0, 1, 2, 3, 4, np.nan]), r"y\[5\]: expected a label"),
        (lambda: Classification(np.zeros((2, 256)), [0, 1]), "X with its intercept: number of features"),
        (lambda: Classification(ROWS, range(6), segments=["a"]), "segments: expected one value for each"),
        (lambda: Segmented({}), "problems: expected a mapping"),
        (lambda: Segmented(["bernoulli:0.1,0.2"]), "problems: expected a mapping"),
        (
            lambda: Segmented({"a": "bernoulli:0.1", "b": "bernoulli:0.1,0.2"}),
            r"problems\['b'\]: expected 1 arms",
        ),
        (lambda: Segmented({"a": "bernoulli:0.1", "b": "gaussian:0.1"}), "expected a bernoulli problem"),
        (lambda: Segmented({"a": "linear"}), "a problem with fixed arms and no contexts"),
        (lambda: Segmented({"a": "bernoulli:0.1,delay=3"}), "without delay and threshold"),
        (lambda: Segmented({"a": "bernoulli:0.1"}, weights=[1, 2]), "weights: expected 1 numbers"),
        (
            lambda: Segmented({"a": "bernoulli:0.1"}, weights={"b": 1}),
            "weights: expected a number for each of a",
        ),
        (lambda: problems.problem("linear:3"), "parameters as key=value"),
        (lambda: problems.problem("end-of-optimism:eps=2"), "eps: expected a finite number >= 0 and <= 0.5"),
    ],
)
def test_bad_values_are_refused_with_field_value_and_fix(make, message) -> None:
    with pytest.raises(InvalidValue, match=message):
        make()


def test_unknown_options_suggest_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'dim'"):
        problems.problem("linear:dims=3")
