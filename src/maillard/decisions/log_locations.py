"""Log locations (paths and URLs) as text that is safe to print."""

from __future__ import annotations

import re
from pathlib import Path

# Text that may contain a password: URLs, malformed URLs, and PostgreSQL's key=value connection strings.
_SECRET = re.compile(r"://|postgres\w*:|^postgres.*:|password\s*=|^\w+:/[^/]*@", re.IGNORECASE)


def is_postgresql(location: str) -> bool:
    """Whether a location is a URL of a PostgreSQL database; otherwise it is a path.

    >>> is_postgresql("postgresql://localhost/shop"), is_postgresql("./postgresql.db")
    (True, False)
    """
    return location.startswith(("postgresql://", "postgres://"))


def redact(source: object) -> str:
    """Return a path as text. Text that may contain a password is cut after its scheme.

    >>> redact("decisions.db"), redact("postgresql://me:secret@host/shop")
    ('decisions.db', 'postgresql...')
    """
    name = str(source) if isinstance(source, str | Path) else repr(source)
    if not _SECRET.search(name):
        return name
    scheme = re.match(r"[A-Za-z]+(?=:)", name)
    return (scheme[0] if scheme else "") + "..."
