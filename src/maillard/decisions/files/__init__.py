"""The log as files that other programs read, one module for each format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from maillard.errors import InvalidValue

__all__ = ["FORMS", "Written", "form_of", "located", "whole"]

# The name of each format, and the endings that mean it.
FORMS = {
    "parquet": (".parquet",),
    "csv": (".csv",),
    "obp": (".npz",),
    "dsjson": (".dsjson", ".jsonl", ".json"),
}


class Written(NamedTuple):
    """What went into a file."""

    rows: int
    left_out: int
    "Decisions without a reward, where the format has no place for them."


def form_of(path: Path, form: str | None = None) -> str:
    """The format of a file: the one that is named, or the one that its ending says."""
    if form is not None:
        if form not in FORMS:
            raise InvalidValue("format", form, "one of " + ", ".join(FORMS))
        return form
    for name, endings in FORMS.items():
        if path.suffix.lower() in endings:
            return name
    endings = tuple(ending for each in FORMS.values() for ending in each)
    raise InvalidValue("file", str(path), "a name that ends in " + ", ".join(endings))


def located(error: InvalidValue, where: str) -> InvalidValue:
    """The same error, with the place in a file where it was found."""
    return InvalidValue(f"{where}: {error.field}", error.value, error.allowed)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A file to write that takes its place when the block ends well; if not, nothing is there that was not before."""
    if not path.parent.is_dir():
        raise InvalidValue("file", str(path), "a path in a folder that exists")
    partial = path.with_name(path.name + ".partial")
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        raise InvalidValue(
            "file", str(path), f"a file that can be written ({error.strerror or error})"
        ) from None
    finally:
        partial.unlink(missing_ok=True)
