"""Compiles functions that only other compiled functions call.

Numba optimizes a function, with all code that it reaches, and translates it to machine code before it
compiles the caller, which inlines and optimizes the same code again. For a function deep below a loop, that
happens many times. A function compiled here is only translated to LLVM's intermediate code; the optimization
and the translation to machine code happen once, with the loop.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.imputils import lower_constant
from numba.core.typed_passes import NativeLowering
from numba.extending import models, register_model


class _NoEnvironment:
    """Stands for the machine code of a function that has none of its own."""

    @staticmethod
    def set_env(_name: str, _environment: Any) -> None:
        """Numba stores objects that a function uses; compiled loops use none."""


class _LinkedLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Code that is linked into other code, and neither optimized nor translated before."""

    codegen = _NoEnvironment

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

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


class InnerFunctionCompiler(CompilerBase):  # type: ignore[misc]
    """Numba's compiler without optimization and machine code: pass it as `pipeline_class`."""

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [
            (_LinkedLowering if each is NativeLowering else each, name) for each, name in passes.passes
        ]
        passes.finalize()
        return [passes]


class InnerFunction(types.Dispatcher):  # type: ignore[misc]
    """The type of a compiled function that other compiled functions call or pass on."""

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        """Return the signature of a call; one for all numbers, while numba has one for each constant."""
        return super().get_call_type(context, tuple(types.unliteral(each) for each in args), kws)


register_model(InnerFunction)(models.OpaqueModel)


@lower_constant(InnerFunction)  # type: ignore[untyped-decorator]
def _constant(context: Any, _builder: Any, _type: Any, _function: Any) -> Any:
    """Return a value for the function, which no code reads: a call names the function by its type.

    Numba's is the address of an object of this process, which the disk cannot cache.
    """
    return context.get_dummy_value()
