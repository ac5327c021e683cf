"""The five steps of CONTRIBUTING.md to add a policy, carried out in a copy of the sources."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_add_a_policy_in_five_steps(tmp_path) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf8")
    steps = re.split(
        r"^\d\. ", text.split("## Add a policy in five steps")[1].split("\n## ")[0], flags=re.MULTILINE
    )
    assert len(steps) == 6  # the text before the first step, and five steps
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    files = re.findall(
        r"`((?:src|tests)/[\w/]+\.py)`.*?```python\n(.*?)^ *```", "".join(steps), re.MULTILINE | re.DOTALL
    )
    assert len(files) == 2  # one source file and its test
    for path, block in files:
        lines = block.splitlines()
        indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
        (tmp_path / path).write_text("\n".join(line[indent:] for line in lines) + "\n", encoding="utf8")
    (name,) = set(re.findall(r"maillard policies ([a-z-]+)", "".join(steps)))

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env={"PYTHONPATH": str(tmp_path / "src"), "PATH": "", "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert name in run("-m", "maillard", "policies")
    assert "reference" in run("-m", "maillard", "policies", name)
    out = run("-m", "pytest", "-q", "-p", "no:cacheprovider", files[1][0])
    assert "passed" in out
    # The contract tests find the new policy.
    out = run(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/policies/test_policies.py", "-k", f"{name}"
    )
    assert int(re.findall(r"(\d+) passed", out)[0]) >= 8
