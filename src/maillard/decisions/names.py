"""What a log may be called, what an export is called, and what of either may be printed."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["ENDINGS", "FORMS", "ending_of", "shown"]

# The name of each format of exported files, and the endings that mean it.
FORMS = {
    "parquet": (".parquet",),
    "csv": (".csv",),
    "obp": (".npz",),
    "dsjson": (".dsjson", ".jsonl", ".json"),
}
ENDINGS = tuple(ending for each in FORMS.values() for ending in each)

# What may hold a password: URLs, what was meant to be one, and PostgreSQL's other way of writing them.
_SECRET = re.compile(r"://|postgres\w*:|^postgres.*:|password\s*=|^\w+:/[^/]*@", re.IGNORECASE)


def ending_of(path: Path) -> str | None:
    """The format that a file's name says; None where it says none of these, as with a SQLite log."""
    for name, endings in FORMS.items():
        if path.suffix.lower() in endings:
            return name
    return None


def shown(source: object) -> str:
    """A path or URL as it may be printed: of whatever may hold a password, only what it begins with.

    >>> shown("decisions.db"), shown("postgresql://me:secret@host/shop")
    ('decisions.db', 'postgresql...')
    """
    name = str(source) if isinstance(source, str | Path) else repr(source)
    if not _SECRET.search(name):
        return name
    scheme = re.match(r"[A-Za-z]+(?=:)", name)
    return (scheme[0] if scheme else "") + "..."
