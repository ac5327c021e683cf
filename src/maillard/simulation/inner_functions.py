"""Compiles loops and the functions that only they call.

Numba optimizes a function, with all code that it reaches, and translates it to machine code before it
compiles the caller, which inlines and optimizes the same code again. For a function deep below a loop, that
happens many times. A function compiled here is only translated to LLVM's intermediate code and simplified on
its own; the full optimization and the translation to machine code happen once, with the loop. While a loop
is compiled, that holds for numba's own functions, too.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from numba import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import register_pass
from numba.core.imputils import lower_constant
from numba.core.typed_passes import NativeLowering
from numba.core.typing.templates import infer_global, make_intrinsic_template
from numba.extending import models, register_model


class _NoEnvironment:
    """Stands for the machine code of a function that has none of its own."""

    @staticmethod
    def set_env(_name: str, _environment: Any) -> None:
        """Numba stores objects that a function uses; compiled loops use none."""


class _LinkedLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Code that is linked into other code, and not translated to machine code before."""

    codegen = _NoEnvironment

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, _name: str) -> int:
        return 0


@register_pass(mutates_CFG=True, analysis_only=False)
class _LinkedLowering(NativeLowering):  # type: ignore[misc]
    _name = "linked_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _LinkedLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        return bool(super().run_pass(state))


class _FastFlags(Flags):  # type: ignore[misc]
    """Numba's flags with a fast comparison: for every call, it compares them with those of other callers."""

    def __hash__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _FastFlags) and self._values == other._values


class InnerFunctionCompiler(CompilerBase):  # type: ignore[misc]
    """Numba's compiler without machine code: pass it as `pipeline_class`."""

    def __init__(
        self,
        typingctx: Any,
        targetctx: Any,
        library: Any,
        args: Any,
        return_type: Any,
        flags: Any,
        locals: Any,
    ) -> None:
        super().__init__(typingctx, targetctx, library, args, return_type, _FastFlags(flags), locals)

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [
            (_LinkedLowering if each is NativeLowering else each, name) for each, name in passes.passes
        ]
        passes.finalize()
        return [passes]


class OuterFunctionCompiler(Compiler):  # type: ignore[misc]
    """Numba's compiler for a loop: whatever is compiled meanwhile is only linked into it."""

    def compile_extra(self, func: Any) -> Any:
        """Compile a function. Numba's lock keeps other threads from compiling meanwhile."""
        codegen = self.state.targetctx.codegen()
        self.state.library = codegen.create_library(func.__qualname__)
        self.state.library.enable_object_caching()
        codegen._library_class = _LinkedLibrary
        collects = gc.isenabled()
        gc.disable()  # it would look at millions of objects and find little garbage
        try:
            return super().compile_extra(func)
        finally:
            del codegen._library_class  # now the attribute of its class
            if collects:
                gc.enable()


class InnerFunction(types.Dispatcher):  # type: ignore[misc]
    """The type of a compiled function that other compiled functions call or pass on."""

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        """Return the signature of a call; one for all numbers, while numba has one for each constant."""
        return super().get_call_type(context, tuple(types.unliteral(each) for each in args), kws)


register_model(InnerFunction)(models.OpaqueModel)


INTRINSICS: list[Any] = []  # the functions that `lowers` was applied to


def lowers(function: Any) -> Callable[[Any], Any]:
    """Return a decorator for the code that stands for a function in compiled code: an intrinsic of numba.

    An overload that calls the intrinsic would be one more function to compile for each type of caller.
    """

    def register(definition: Any) -> Any:
        template = make_intrinsic_template(function, definition, function.__name__)
        infer_global(function, types.Function(template))
        INTRINSICS.append(function)
        return definition

    return register


@lower_constant(InnerFunction)  # type: ignore[untyped-decorator]
def _constant(context: Any, _builder: Any, _type: Any, _function: Any) -> Any:
    """Return a value for the function, which no code reads: a call names the function by its type.

    Numba's is the address of an object of this process, which the disk cannot cache.
    """
    return context.get_dummy_value()
