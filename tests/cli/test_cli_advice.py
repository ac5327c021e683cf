"""`maillard advise`: its questions, its options and its output."""

from __future__ import annotations

import json
import shlex

import pytest
from click.testing import CliRunner

from maillard import advise
from maillard.cli import main


def run(*arguments: object, answers: str = "", code: int = 0) -> tuple[str, str]:
    """What the command prints on stdout and stderr."""
    words = ["advise", *map(str, arguments)]
    result = CliRunner().invoke(main, words, input=answers, env={"NO_COLOR": "1"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result.stdout, result.stderr


def test_answers_of_the_prompts_and_options_give_the_same_advice() -> None:
    answers = "2\nclicks\n30%\n20%\n2,400\n400\n1h\nnone\ny\n"
    asked, questions = run("--ask", "--quick", "--json", answers=answers)
    words = "--arms 2 --rate 30% --lift 0.2 --traffic 2400 --horizon 400 --delay 1h --evaluate --yes --quick"
    given, silence = run(*words.split(), "--json")
    advice = advise(2, rate=0.3, lift=0.2, traffic=2400, horizon=400, delay="1h", evaluate=True, quick=True)
    assert silence == ""
    assert json.loads(asked)["policy"] == json.loads(given)["policy"] == advice.policy
    assert json.loads(asked)["tried"] == json.loads(given)["tried"]
    assert json.loads(given)["tried"][0]["regret"] == advice.tried[0].regret
    assert "Which percentage of visitors clicks today" in questions
    assert "Which difference is worth finding? 15% is for a variant at 45% instead of 30% [15%]" in questions


def test_a_wrong_answer_is_asked_again() -> None:
    answers = "one\n2\nclick\nclicks\n30\n30%\n90%\n20%\n\n5\n400\nsoon\n10m\n\nn\n"
    output, questions = run("--ask", "--quick", answers=answers)
    for message in (
        "Error: expected a number of arms, or their names, such as red,blue, got 'one'",
        "Error: expected one of clicks, binary, revenue, bounded, unbounded, got 'click'",
        "Error: expected a number > 0 and < 1 (did you mean 30%, which is 0.3?), got 30",
        "Error: expected a number > 0 and <= 0.7, got 90%",
        "Error: expected at least 20 decisions",
        "Error: expected seconds, or a number with a unit",
    ):
        assert message in questions
    assert output.startswith("Suggestion: kl-ms+\n")
    assert "No floor, because you will not evaluate the log" in output


def test_only_questions_that_apply_are_asked() -> None:
    answers = "2\n\n1..5\n3\n0.5\n1\n100\n400\n0s\nsegments\n2\n\n"
    output, questions = run("--ask", "--quick", "--reward", "bounded", answers=answers)
    assert "What is a reward?" not in questions
    assert "What are the lowest and the highest reward?" in questions
    assert "standard deviation" in questions
    assert "How many groups?" in questions
    assert 'segments=["device"]' in output
    ending = output.partition("When it has ended\n")[2].partition("\n\n")[0]
    assert "Stop making decisions. What would" in ending
    command = shlex.split(ending.splitlines()[-1])
    assert command[:2] == ["maillard", "compare"]
    context = main.commands["compare"].make_context("compare", command[2:])
    assert (context.params["by"], context.params["active"]) == (["device"], False)
    assert "Reward(low=1, high=5)" in output


@pytest.mark.parametrize("limits", ["300", "20-300", "20 to 300", "20..300", "0 – 300"])
def test_answers_may_be_written_as_people_write_them(limits) -> None:
    answers = f"2\nrevenue\n{limits}\n2%\n40\n20\n20\n4 weeks\n18 hours\n\nn\n"
    output, questions = run("--ask", "--quick", answers=answers)
    assert "Error" not in questions
    assert "standard deviation of a reward?" not in questions
    assert "√(0.02 × 2 × 40² - 0.8²) = 7.96" in questions
    assert "0.4 is for a variant at 1.2 instead of 0.8, as when 2% of them buy, and 3%" in questions
    assert "--reward revenue --reward-range 0..300" in output
    assert "--buyers 0.02 --order 40 --traffic 20 --horizon 28d --delay 18h" in output


@pytest.mark.parametrize("limits", [[], ["--reward", "bounded", "--reward-range", "20..300"]])
def test_rewards_that_are_mostly_nothing_are_revenue(limits) -> None:
    given = "2\ny\n" if limits else "2\nbounded\ny\n20..300\n"
    answers = f"{given}2%\n40\n20\n20\n400\n1h\n\nn\n"
    output, questions = run("--ask", "--quick", *limits, answers=answers)
    assert "Do most decisions earn nothing (0), as with revenue? [y/N]" in questions
    assert "--reward revenue --reward-range 0..300" in output
    assert "default=0" in output


def test_revenue_is_an_option_too() -> None:
    words = "--reward revenue --reward-range 0..300 --buyers 2% --order 40 --horizon 400 --quick"
    output, _ = run(*words.split(), "--delay", "1h")
    assert "an order of 40 on average" in " ".join(output.split())
    assert "default=0" in output


def test_a_range_may_be_negative() -> None:
    output, _ = run("--reward", "bounded", "--reward-range", "-2--1", "--horizon", 400, "--quick")
    assert "rewards from -2 to -1" in " ".join(output.split())


def test_without_a_terminal_nothing_is_asked() -> None:
    output, questions = run("--horizon", 400, "--quick")
    assert questions == ""
    assert "Assumed, because not given: arms 2, reward clicks, rate 0.03" in " ".join(output.split())


def test_the_command_repeats_the_advice() -> None:
    arguments = ["--arms", "old,new", "--reward", "binary", "--horizon", 400, "--seed", 7, "--max-regret", 9]
    first, _ = run(*arguments, "--quick", "--json")
    program, command, *words = shlex.split(json.loads(first)["command"])
    assert (program, command) == ("maillard", "advise")
    again = json.loads(run(*words, "--json")[0])
    assert again["requirements"].pop("assumed") == []
    first = json.loads(first)
    first["requirements"].pop("assumed")
    assert again == first
    shown = run(*words)[0].partition("To repeat\n")[2]
    assert shlex.split(shown) == [program, command, *words]


def test_the_suggested_deviation_is_accepted_and_repeats_the_advice() -> None:
    """The largest deviation has more digits than the prompt shows: 26.7253 is slightly too large."""
    words = ["--reward", "bounded", "--reward-range", "0..300", "--quick", "--seed", 2, "--traffic", 100]
    answers = "2\nn\n2.4\n1.2\n\n4d\n\n\n\n"
    asked, questions = run("--ask", *words, answers=answers)
    assert questions.count("press Enter for a careful guess [26.7253]") == 1
    assert "Error" not in questions
    command = shlex.split(asked.partition("To repeat\n")[2])
    assert command[command.index("--horizon") + 1] == "4d"
    again, _ = run(*command[2:])
    given, _ = run(*words, "--arms", 2, "--rate", 2.4, "--lift", 1.2, "--horizon", "4d", "--yes")
    table = [
        text.partition("What to expect")[2].partition("Keep in mind")[0] for text in (asked, again, given)
    ]
    assert table[0] == table[1] == table[2] != ""


def test_a_figure_is_written(tmp_path) -> None:
    path = tmp_path / "advice.png"
    _, messages = run("--horizon", 400, "--rate", 0.3, "--quick", "--figure", path)
    assert path.stat().st_size > 1000
    assert messages == f"wrote {path}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arms", "few"], "--arms: expected a number of arms"),
        (["--rate", "much"], "--rate: expected a number such as 0.03, 3% or 2,000"),
        (["--rate", "2"], "rate: expected a number > 0 and < 1 (did you mean 2%, which is 0.02?), got 2"),
        (["--reward", "click"], "reward: "),
        (
            ["--reward", "bounded", "--reward-range", "0..300", "--rate", "2%"],
            "rate: expected a number in the unit of the rewards, not a percentage, because rewards are "
            "bounded (if 2% of decisions end in an order, use --reward revenue --buyers 2% --order with the "
            "value of a typical order), got 2%",
        ),
        (["--reward", "revenue", "--lift", "1%"], "lift: expected a number in the unit of the rewards"),
        (["--rate", "300%"], "rate: expected a number > 0 and < 1"),
        (["--reward", "bounded", "--reward-range", "1,5"], "--reward-range: expected LOW..HIGH"),
        (["--figure", "advice.txt"], "--figure: expected a name that ends in .png or .svg"),
        (["--delay", "soon"], "delay: expected"),
    ],
)
def test_errors_are_one_line(arguments, message) -> None:
    _, errors = run(*arguments, "--yes", code=2)
    assert errors.startswith(f"maillard: {message}")
    assert errors.count("\n") == 1


def test_no_more_answers_stop_the_command() -> None:
    _, messages = run("--ask", answers="2\n", code=1)
    assert messages.rstrip().endswith("Aborted!")
