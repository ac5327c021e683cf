"""Print the oldest versions that pyproject.toml allows, as constraints for pip. `make oldest` tests them.

This runs before anything is installed, so it needs only the standard library.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"
# A requirement with a lower bound, such as `psycopg[binary]>=3.2` or `uvloop>=0.21; sys_platform != 'win32'`.
_BOUNDED = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[^]]*\])?>=(?P<version>[0-9.]+)[^;]*(;.*)?")


def oldest_versions(pyproject: Path = PYPROJECT) -> dict[str, str]:
    """The lower bound of every dependency, of the package and of its extras, that has one."""
    project = tomllib.loads(pyproject.read_text(encoding="utf8"))["project"]
    required = [*project["dependencies"]]
    for extra in project.get("optional-dependencies", {}).values():
        required += extra
    found = [match for each in required if (match := _BOUNDED.fullmatch(each))]
    return {match["name"]: match["version"] for match in found}


if __name__ == "__main__":
    for name, version in sorted(oldest_versions().items()):
        print(f"{name}=={version}")
