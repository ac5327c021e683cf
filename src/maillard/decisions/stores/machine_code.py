"""Machine code of the loops in `compiled_rows`, which numba makes once for each machine.

Importing numba and loading a function from its cache take most of a second, as long as reading 200,000 rows.
So the machine code is cached here, without anything that needs numba, and loaded by llvmlite alone. It is
made from the source of the loops for this processor and these versions: anything else has another file.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from maillard.decisions.stores import row_codes, sqlite_library

_FUNCTIONS = ("copy_rows", "find_keys")
_DIGEST_SIZE = 32
# Loops over bytes may become calls of these functions of C.
_ALLOWED = re.compile(r"llvm\.|maillard_|(mem(cpy|set|move|cmp)|bcmp)$")
_SOURCES = ("compiled_rows.py", "row_codes.py", "machine_code.py")


class Loops(NamedTuple):
    """The functions of `compiled_rows`. Arrays are passed by address."""

    copy_rows: Callable[..., int]
    find_keys: Callable[..., int]


_loaded: list[Loops] = []  # machine code stays in memory to the end


def loops(*, build: bool = False) -> Loops | None:
    """Return the compiled loops; None if they are not cached, or with `build` if they cannot be made."""
    if not _loaded and sqlite_library.library() is not None:
        try:
            content = _cached() or (_build() if build else None)
        except Exception:  # noqa: BLE001  # numba and LLVM raise many types; there are other ways to read
            content = None
        if content is not None:
            _loaded.append(_load(content))
    return _loaded[0] if _loaded else None


@cache
def _name() -> str:
    """Return the name of the file in the cache, which is different if anything differs."""
    import llvmlite.binding as llvm

    key = hashlib.sha256()
    for source in _SOURCES:
        key.update(Path(__file__).with_name(source).read_bytes())
    cpu = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), platform.machine()
    versions = metadata.version("llvmlite"), metadata.version("numba"), platform.python_version()
    key.update(repr((cpu, versions, platform.system())).encode())
    return f"maillard-rows-{key.hexdigest()[:32]}.bin"


def _folders() -> Iterator[Path]:
    """Yield the folders that may contain the cache, like those of numba."""
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(given)
        return
    yield Path(__file__).with_name("__pycache__")
    with suppress(RuntimeError):  # there is no home
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "maillard"


def _cached() -> bytes | None:
    for folder in _folders():
        with suppress(OSError):
            content = (folder / _name()).read_bytes()
            digest, code = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
            if hashlib.sha256(code).digest() == digest:  # a damaged file could do anything
                return code
    return None


def _save(code: bytes) -> None:
    for folder in _folders():
        temporary = folder / f"{_name()}.{secrets.token_hex(8)}"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary.write_bytes(hashlib.sha256(code).digest() + code)
            temporary.replace(folder / _name())
        except OSError:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        else:
            return


def _target() -> Any:
    """Return the machine that code is made for: this one."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for name, address in sqlite_library.addresses().items():
        llvm.add_symbol(row_codes.SYMBOL.format(name.removeprefix("sqlite3_")), address)
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3, jit=True
    )


def _build() -> bytes | None:
    """Compile the loops with numba, and cache them."""
    target = _target()
    import llvmlite.binding as llvm
    import numba

    from maillard.decisions.stores import compiled_rows

    parts = []
    for function, signature in compiled_rows.SIGNATURES.items():
        made = numba.cfunc(signature, error_model="numpy")(function)
        source = _without_python(made.inspect_llvm(), made.native_name, f"maillard_{function.__name__}")
        if source is None:
            return None
        parts.append(llvm.parse_assembly(source))
    module = parts[0]
    for part in parts[1:]:
        module.link_in(part)
    module.verify()
    code: bytes = target.emit_object(module)
    _save(code)
    return code


def _without_python(source: str, wrapper: str, name: str) -> str | None:
    """Remove numba's C function, which handles Python exceptions. Return None if the rest needs Python, too.

    The function that it calls gets this name. It has two more arguments: addresses for the result and for an
    exception, which the loops do not raise.
    """
    function = rf'^define [^\n]*@"?{re.escape(wrapper)}"?\(.*?^}}\n'
    source = re.sub(function, "", source, count=1, flags=re.MULTILINE | re.DOTALL)
    source = source.replace(f"@{wrapper.removeprefix('cfunc.')}(", f"@{name}(")
    lines = source.split("\n")
    for line in list(lines):
        found = re.match(r'declare [^\n]*@"?([^"(]+)"?\(|@"?([^"= ]+)"? = external ', line)
        if found is None:
            continue
        symbol = found[1] or found[2]
        if len(re.findall(rf'@"?{re.escape(symbol)}\b', source)) == 1:
            lines.remove(line)
        elif not _ALLOWED.match(symbol):
            return None
    return "\n".join(lines) if f"@{name}(" in source else None


def _load(code: bytes) -> Loops:
    """Link machine code with SQLite."""
    import llvmlite.binding as llvm

    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    found = Loops(*(_callable(engine.get_function_address(f"maillard_{name}")) for name in _FUNCTIONS))
    found.copy_rows.engine = engine  # type: ignore[attr-defined]  # as long as its functions
    return found


def _callable(address: int) -> Callable[..., int]:
    """Return a function that takes integers and the addresses of arrays, without the interpreter lock."""
    function = ctypes.CFUNCTYPE(ctypes.c_int32)(address)

    def call(*arguments: Any) -> int:
        result, error = ctypes.c_int64(), ctypes.c_void_p()
        given = [each if isinstance(each, int) else each.ctypes.data for each in arguments]
        status = function(ctypes.byref(result), ctypes.byref(error), *map(ctypes.c_int64, given))
        if status:
            raise RuntimeError(f"compiled code returned the status {status}")
        return result.value

    return call
