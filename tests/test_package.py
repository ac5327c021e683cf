"""The top-level package lists and resolves its public names."""

from __future__ import annotations

from typing import Any

import maillard

PUBLIC_NAMES: Any = maillard.__all__


def test_dir_lists_the_public_names_and_nothing_else() -> None:
    listed = dir(maillard)
    assert {"Bandit", "Reward", "evaluate", "simulate", "Client", "MaillardSampling", "policy"} <= set(listed)
    assert "TYPE_CHECKING" not in listed
    assert set(listed) == {*PUBLIC_NAMES, "__version__"}
    assert len(set(PUBLIC_NAMES)) == len(PUBLIC_NAMES)


def test_every_listed_name_exists() -> None:
    for name in dir(maillard):
        assert getattr(maillard, name) is not None, name
