"""Operators of PyTorch on segments of tensors, with gradients: `torch.ops.megabatch`.

Each is defined once, by its schema, its kernel for the CPU and for GPUs, its shape and its backward pass. Called as an `Operator` with
ordinary tensors it takes a short way that spares PyTorch's dispatcher; `torch.compile` and TorchScript see the operator
that is registered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import _scatter_kernels as kernels

LIBRARY = torch.library.Library("megabatch", "DEF")
"""The operators; they last as long as this."""

_ORDINARY = (Tensor, torch.nn.Parameter)


def is_ordinary(tensor: Tensor, *others: Any) -> bool:
    """True for tensors whose memory a kernel may take, seen by no transformation and no dispatch mode. Of `others` those
    count that are tensors."""
    for other in others:
        if type(other) not in _ORDINARY and isinstance(other, Tensor):
            return False
    return (
        type(tensor) in _ORDINARY
        and (tensor.is_cpu or tensor.is_cuda)
        and not torch._C._are_functorch_transforms_active()
        and torch._C._len_torch_dispatch_stack() == 0
    )


class Operator:
    """An operator. `save` keeps what `backward` needs on a context; `differentiable` are the places of the tensors that
    have gradients."""

    def __init__(
        self,
        schema: str,
        kernel: Callable[..., Any],
        shape: Callable[..., Any],
        save: Callable[..., None] | None = None,
        backward: Callable[..., Any] | None = None,
        differentiable: tuple[int, ...] = (),
    ) -> None:
        name = schema.partition("(")[0]
        LIBRARY.define(schema)
        LIBRARY.impl(name, kernel, "CPU")
        LIBRARY.impl(name, kernel, "CUDA")
        torch.library.register_fake(f"megabatch::{name}", shape, lib=LIBRARY)
        self.kernel, self.differentiable = kernel, differentiable
        self.registered = getattr(torch.ops.megabatch, name).default
        if save is None or backward is None:
            return
        torch.library.register_autograd(f"megabatch::{name}", backward, setup_context=save, lib=LIBRARY)

        def forward(ctx: Any, *inputs: Any) -> Any:
            output = kernel(*inputs)
            save(ctx, inputs, output)
            return output

        members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        self.function: Any = type(name, (torch.autograd.Function,), members)

    def __call__(self, *inputs: Any) -> Any:
        if torch.compiler.is_compiling() or not is_ordinary(*inputs):
            return self.registered(*inputs)
        if self.differentiable and torch.is_grad_enabled():
            for place in self.differentiable:
                tensor = inputs[place]
                if tensor is not None and tensor.requires_grad:
                    return self.function.apply(*inputs)
        return self.kernel(*inputs)


def _resized(x: Tensor, dim: int, size: int, dtype: torch.dtype | None = None) -> Tensor:
    shape = list(x.shape)
    shape[dim] = size
    return x.new_empty(shape, dtype=dtype or x.dtype)


def _for_segments(src: Tensor, dim: int, plan: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    return _resized(src, dim, plan.shape[0] - 2 - src.shape[dim], dtype)


plan = Operator(
    "segment_plan(Tensor index, int segments) -> Tensor",
    kernels.plan,
    lambda index, segments: index.new_empty([segments + 2 + index.shape[0]], dtype=torch.int32),
)
sorted_plan = Operator(
    "segment_sorted_plan(Tensor index, int segments) -> Tensor",
    kernels.sorted_plan,
    lambda index, segments: index.new_empty([segments + 2 + index.shape[0]], dtype=torch.int32),
)
offsets_plan = Operator(
    "segment_offsets_plan(Tensor indptr, int rows) -> Tensor",
    kernels.offsets_plan,
    lambda indptr, rows: indptr.new_empty([indptr.shape[0] + 1 + rows], dtype=torch.int32),
)


def counts(plan: Tensor, like: Tensor, dim: int) -> Tensor:
    """Numbers of rows of the segments, 1 where there are none, to divide `like`, `[*, segments, *]`."""
    segments = like.shape[dim]
    numbers = (plan[1 : segments + 1] - plan[:segments]).clamp_(min=1).to(like.dtype)
    return numbers.view([-1] + [1] * (like.dim() - dim - 1))


def _save_rows(ctx: Any, inputs: Any, output: Any) -> None:
    _, ctx.dim, index, plan, *_ = inputs
    ctx.save_for_backward(index, plan)


def _sum_backward(ctx: Any, grad: Tensor) -> Any:
    index, plan = ctx.saved_tensors
    d_src = gather(grad, ctx.dim, index, plan) if ctx.needs_input_grad[0] else None
    return d_src, None, None, None, grad if ctx.needs_input_grad[4] else None


segment_sum = Operator(
    "segment_sum(Tensor src, int dim, Tensor? index, Tensor plan, Tensor? base) -> Tensor",
    lambda src, dim, index, plan, base: kernels.fold(kernels.SUM, src, dim, plan, base),
    lambda src, dim, index, plan, base: _for_segments(src, dim, plan),
    _save_rows,
    _sum_backward,
    (0, 4),
)


def _mean_backward(ctx: Any, grad: Tensor) -> Any:
    index, plan = ctx.saved_tensors
    d_src = mean_gather(grad, ctx.dim, index, plan) if ctx.needs_input_grad[0] else None
    d_base = grad / counts(plan, grad, ctx.dim) if ctx.needs_input_grad[4] else None
    return d_src, None, None, None, d_base


segment_mean = Operator(
    "segment_mean(Tensor src, int dim, Tensor? index, Tensor plan, Tensor? base) -> Tensor",
    lambda src, dim, index, plan, base: kernels.fold(kernels.MEAN, src, dim, plan, base),
    lambda src, dim, index, plan, base: _for_segments(src, dim, plan),
    _save_rows,
    _mean_backward,
    (0, 4),
)


def _save_product(ctx: Any, inputs: Any, output: Any) -> None:
    src, ctx.dim, index, plan, base = inputs
    ctx.save_for_backward(src, index, plan, base, output)


def _product_backward(ctx: Any, grad: Tensor) -> Any:
    src, index, plan, base, out = ctx.saved_tensors

    # The product of the others is the product over the number itself, which says nothing where it is 0.
    def over(product: Tensor, factor: Tensor) -> Tensor:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling() and bool((factor == 0).any()):
            raise RuntimeError("products with a factor of 0 have no second derivative here: leave out create_graph")
        return torch.where(factor == 0, 0, product / factor)

    product = grad * out
    d_src = over(gather(product, ctx.dim, index, plan), src) if ctx.needs_input_grad[0] else None
    return d_src, None, None, None, over(product, base) if ctx.needs_input_grad[4] else None


segment_mul = Operator(
    "segment_mul(Tensor src, int dim, Tensor? index, Tensor plan, Tensor? base) -> Tensor",
    lambda src, dim, index, plan, base: kernels.fold(kernels.PRODUCT, src, dim, plan, base),
    lambda src, dim, index, plan, base: _for_segments(src, dim, plan),
    _save_product,
    _product_backward,
    (0, 4),
)


def _save_extremum(ctx: Any, inputs: Any, output: Any) -> None:
    src, ctx.dim, plan, _ = inputs
    ctx.rows = src.shape[ctx.dim]
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(plan, output[1])


def _extremum_backward(ctx: Any, grad: Tensor, _: Any) -> Any:
    plan, arguments = ctx.saved_tensors
    d_src = extremum_backward(grad, ctx.dim, arguments, plan) if ctx.needs_input_grad[0] else None
    return d_src, None, None, torch.where(arguments == ctx.rows, grad, 0) if ctx.needs_input_grad[3] else None


def _extremum(name: str, which: int) -> Operator:
    return Operator(
        f"segment_{name}(Tensor src, int dim, Tensor plan, Tensor? base) -> (Tensor, Tensor)",
        lambda src, dim, plan, base: kernels.extremum(which, src, dim, plan, base),
        lambda src, dim, plan, base: (_for_segments(src, dim, plan), _for_segments(src, dim, plan, torch.int64)),
        _save_extremum,
        _extremum_backward,
        (0, 3),
    )


segment_max, segment_min = _extremum("max", kernels.MAX), _extremum("min", kernels.MIN)


def _save_arguments(ctx: Any, inputs: Any, output: Any) -> None:
    _, ctx.dim, arguments, _ = inputs
    ctx.save_for_backward(arguments)


def _found(ctx: Any, grad: Tensor) -> Any:
    # The row after the last stands for no row.
    (arguments,) = ctx.saved_tensors
    none = grad.new_zeros([1 if dim == ctx.dim else size for dim, size in enumerate(grad.shape)])
    return torch.cat([grad, none], ctx.dim).gather(ctx.dim, arguments), None, None, None


extremum_backward = Operator(
    "segment_extremum_backward(Tensor grad, int dim, Tensor arguments, Tensor plan) -> Tensor",
    kernels.extremum_backward,
    lambda grad, dim, arguments, plan: _for_segments(grad, dim, plan),
    _save_arguments,
    _found,
    (0,),
)


def _gather_backward(ctx: Any, grad: Tensor) -> Any:
    index, plan = ctx.saved_tensors
    return segment_sum(grad, ctx.dim, index, plan, None), None, None, None


gather = Operator(
    "segment_gather(Tensor values, int dim, Tensor? index, Tensor plan) -> Tensor",
    lambda values, dim, index, plan: kernels.gather(kernels.WHOLE, values, dim, index, plan),
    lambda values, dim, index, plan: _for_segments(values, dim, plan),
    _save_rows,
    _gather_backward,
    (0,),
)


def _mean_gather_backward(ctx: Any, grad: Tensor) -> Any:
    index, plan = ctx.saved_tensors
    return segment_mean(grad, ctx.dim, index, plan, None), None, None, None


mean_gather = Operator(
    "segment_mean_gather(Tensor values, int dim, Tensor? index, Tensor plan) -> Tensor",
    lambda values, dim, index, plan: kernels.gather(kernels.EQUAL, values, dim, index, plan),
    lambda values, dim, index, plan: _for_segments(values, dim, plan),
    _save_rows,
    _mean_gather_backward,
    (0,),
)


def _save_softmax(ctx: Any, inputs: Any, output: Any) -> None:
    _, ctx.dim, index, plan, ctx.eps = inputs
    ctx.save_for_backward(index, plan, output)


def _softmax_backward(ctx: Any, grad: Tensor) -> Any:
    index, plan, y = ctx.saved_tensors
    if not torch.is_grad_enabled():
        return softmax_backward(y, grad, ctx.dim, plan, ctx.eps), None, None, None, None

    # Forms that have gradients themselves.
    def total(x: Tensor) -> Tensor:
        summed: Tensor = gather(segment_sum(x, ctx.dim, index, plan, None), ctx.dim, index, plan)
        return summed

    d_src = y * (grad - total(y * grad)) if ctx.eps is None else grad - y.exp() * total(grad)
    return d_src, None, None, None, None


segment_softmax = Operator(
    "segment_softmax(Tensor src, int dim, Tensor? index, Tensor plan, float? eps) -> Tensor",
    lambda src, dim, index, plan, eps: kernels.softmax(src, dim, plan, eps),
    lambda src, dim, index, plan, eps: src.new_empty(src.shape),
    _save_softmax,
    _softmax_backward,
    (0,),
)
softmax_backward = Operator(
    "segment_softmax_backward(Tensor y, Tensor grad, int dim, Tensor plan, float? eps) -> Tensor",
    kernels.softmax_backward,
    lambda y, grad, dim, plan, eps: y.new_empty(y.shape),
)
