"""Representations of objects that fit on one screen: at most 24 lines of 110 columns.

Long sequences are shortened with their size, long texts in the middle, and long reports at the end.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

LINES, COLUMNS = 24, 110
_INDENT = "    "


def printable(text: str, keep: str = "") -> str:
    r"""Escape invisible characters (control, direction, lone surrogates), except those in `keep`.

    >>> print(printable("red\x1b[31m"))
    red\x1b[31m
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def fit_screen(text: str, *, lines: int = LINES) -> str:
    """Return the text with long lines wrapped, without the lines that do not fit on the screen."""
    wrapped: list[str] = []
    for line in printable(text, "\n").split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        if len(line) <= COLUMNS:
            wrapped.append(line)
        elif len(indent) > COLUMNS // 2:  # nothing that this package prints
            wrapped.append(cut(line, COLUMNS))
        else:
            further = f"{indent}  "
            wrapped += textwrap.wrap(
                line, COLUMNS, subsequent_indent=further, break_on_hyphens=False, drop_whitespace=True
            )
    if len(wrapped) <= lines:
        return "\n".join(wrapped)
    left = len(wrapped) - lines + 1
    return "\n".join([*wrapped[: lines - 1], f"... and {left:,} more lines; print() shows all"])


def cut(text: str, length: int) -> str:
    """Return the text, without its middle if it is longer than `length`.

    >>> cut("abcdefghij", 8), cut("short", 8)
    ('abc...ij', 'short')
    """
    if len(text) <= length:
        return text
    room = max(length - 3, 0)
    return f"{text[: room - room // 2]}...{text[len(text) - room // 2 :]}"


def listed(texts: Sequence[str], length: int, *, what: str = "") -> str:
    """Return the texts with commas between them, as many as fit, and then how many there are.

    >>> listed(["1", "2", "3"], 20), listed([str(each) for each in range(1000)], 24, what="arms")
    ('1, 2, 3', '0, 1, 2, ... 1,000 arms')
    """
    size = texts.size if isinstance(texts, Listing) else len(texts)
    shown = ", ".join(texts[: length // 2 + 1])
    if len(shown) <= length and size <= len(texts) <= length // 2 + 1:
        return shown
    ending = f"... {size:,}" + (f" {what}" if what else " in all")
    shown, used = "", len(ending)
    for text in texts:
        used += len(text) + 2
        if used > length:
            break
        shown += f"{text}, "
    return shown + ending


def short_value(value: Any, length: int = COLUMNS, *, what: str = "") -> str:
    """Return a representation of a value with at most about `length` characters.

    >>> short_value(list(range(100)), 30), short_value("a" * 100, 12)
    ('[0, 1, 2, 3, ... 100 in all]', "'aaaa...aaa'")
    """
    if isinstance(getattr(value, "shape", None), tuple) and hasattr(value, "tolist"):
        return _short_array(value, length, what)  # without importing NumPy
    if isinstance(value, Listing):
        return f"[{listed(value, length - 2, what=what)}]"
    if isinstance(value, Mapping):
        some = islice(value.items(), length)
        pairs = [f"{short_value(key, length // 3)}: {short_value(each, length // 2)}" for key, each in some]
        return f"{{{listed(Listing(pairs, len(value)), length - 2, what=what)}}}"
    if type(value) in (list, tuple):
        opening, closing = "[]" if isinstance(value, list) else ("(", ",)" if len(value) == 1 else ")")
        texts = Listing([short_value(each, length // 2) for each in value[:length]], len(value))
        return f"{opening}{listed(texts, length - 3, what=what)}{closing}"
    if isinstance(value, str):
        return repr(value) if len(repr(value)) <= length else repr(cut(value, max(length - 2, 3)))
    # The repr of a function has its address.
    is_function = callable(value) and hasattr(value, "__qualname__")
    return cut(f"<{value.__qualname__}>" if is_function else " ".join(repr(value).split()), length)


def _short_array(array: Any, length: int, what: str) -> str:
    if len(array.shape) == 1:
        texts = Listing(map(repr, array[:length].tolist()), len(array))
        return f"[{listed(texts, length - 2, what=what)}]"
    size = " x ".join(f"{each:,}" for each in array.shape)
    return f"<{size} array of {array.dtype}>" if array.shape else repr(array.tolist())


class Listing(list[str]):
    """The representations of the first elements of a list, and how many there are in all."""

    def __init__(self, texts: Iterable[str], size: int) -> None:
        super().__init__(texts)
        self.size = size


def fields_repr(name: str, fields: Iterable[tuple[str, Any]], *, what: str = "") -> str:
    """Return `Name(field=value, ...)`: one line if that fits, else one line for each field.

    >>> fields_repr("Point", [("x", 1), ("y", 2.5)])
    'Point(x=1, y=2.5)'
    """
    given = list(fields)
    whole = [f"{field}={short_value(value, COLUMNS, what=what)}" for field, value in given]
    line = f"{name}({', '.join(whole)})"
    if len(line) <= COLUMNS:
        return line
    room = COLUMNS - len(_INDENT) - 2
    lines = [
        f"{_INDENT}{field}={short_value(value, room - len(field), what=what)}," for field, value in given
    ]
    return fit_screen("\n".join([f"{name}(", *lines[: LINES - 3], *_rest(lines), ")"]))


def _rest(lines: Sequence[str]) -> list[str]:
    left = len(lines) - (LINES - 3)
    return [f"{_INDENT}... and {left} more fields"] if left > 0 else []


def dataclass_repr(self: Any) -> str:
    """Return the representation of a dataclass: a class uses it as its `__repr__`."""
    import dataclasses

    shown = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self) if field.repr)
    return fields_repr(type(self).__name__, shown)
