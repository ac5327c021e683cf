"""Similar names, for the suggestion "Did you mean ...?" in errors about unknown names.

Two names are similar if one of these is true:

- they are equal apart from case, and hyphens, underscores and spaces mean the same;
- one becomes the other by few edits: at most one for names of 3 to 6 characters, two for 7 to 10, and three
  for longer ones. An edit inserts, removes or replaces a character, or exchanges two neighbours. An exchange
  is also enough for two characters. Names with different digits are not similar: `arm-12` is not `arm-11`;
- one is the beginning of the other: an abbreviation of three characters or more, unless it fits several
  names, or a known name with further words after it, as in `thompson-sampling`.
"""

from __future__ import annotations

from collections.abc import Iterable

_MAX_EDITS = 3
_MIN_LENGTH = 3  # of an abbreviation


def similar_names(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that are similar to a name, the most similar first.

    >>> similar_names("kl-mss", ["kl-ms", "kl-ucb", "ms"]), similar_names("xyz", ["ms", "ts", "phe"])
    (['kl-ms'], [])
    """
    wanted = _plain(name)
    plain = {each: _plain(each) for each in known}
    abbreviated = _abbreviated(wanted, plain.values())
    found: dict[str, int] = {}
    for each, text in plain.items():
        edits = _edits(wanted, text, _allowed(wanted, text))
        if edits is not None:
            found[each] = edits
        elif text == abbreviated:
            found[each] = _MAX_EDITS + 1
        elif len(text) >= _MIN_LENGTH and wanted.startswith(text + "-"):
            found[each] = _MAX_EDITS + 2
    return sorted(found, key=found.__getitem__)


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(" ", "-")


def _abbreviated(wanted: str, known: Iterable[str]) -> str | None:
    """Return the name that begins like this and with which all such names begin; None without one."""
    longer = sorted((each for each in known if each.startswith(wanted)), key=len)
    if len(wanted) < _MIN_LENGTH or not longer:
        return None
    return longer[0] if all(each.startswith(longer[0]) for each in longer) else None


def _allowed(one: str, other: str) -> int:
    """Return the number of edits up to which two names are similar."""
    if len(one) == len(other) == 2:
        return int(one == other[::-1])
    digits, others = ("".join(filter(str.isdigit, each)) for each in (one, other))
    if digits and others and digits != others:
        return 0
    return min((max(len(one), len(other)) + 1) // 4, _MAX_EDITS)


def _edits(one: str, other: str, most: int) -> int | None:
    """Return the number of edits between two texts (optimal string alignment); None if it exceeds `most`."""
    if abs(len(one) - len(other)) > most or (not most and one != other):
        return None
    far = most + 1
    before, row = [far] * (len(other) + 1), list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        last, before, row = before, row, [far] * (len(other) + 1)
        if i <= most:
            row[0] = i
        for j in range(max(1, i - most), min(len(other), i + most) + 1):
            same = letter == other[j - 1]
            row[j] = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (not same))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == other[j - 1]:
                row[j] = min(row[j], last[j - 2] + 1)
    return row[-1] if row[-1] <= most else None
