"""Numbers that compiled code and its callers share."""

from __future__ import annotations

SYMBOL = "maillard_sqlite3_{}"
"Compiled code calls SQLite's functions by these names: another library may contain a copy of SQLite."

WHOLE, REAL, TEXT, BYTES, NAME, ID, UUID, EMPTY, NOTHING = range(9)  # how a column is copied
FINISHED, NO_ROOM, NO_WORDS, ODD, FAILED = range(5)  # results
ROWS, AT_ROW, NOT_ASCII, WORDS = range(4)  # the elements of `state`
