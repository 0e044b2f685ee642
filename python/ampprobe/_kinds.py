"""What kind of operation an operation of ATen is: the record's name of its type, and its traits.

Names and traits are those of `kernels/ops/ops.def` and `kernels/ops/traits/op_traits.def`, which the rules of
`ampbench diagnose` read; an operation that is not here has its own name and no trait.
"""

from __future__ import annotations

from typing import Any

_TRAITS = {
    "exponential": ("exp", "exp2", "expm1", "logsumexp", "softplus", "sinh", "cosh"),
    "logarithm": ("log", "log2", "log10", "log1p", "logit", "xlogy", "special_xlog1py", "special_entr",
                  "atanh", "acosh", "erfinv"),  # fmt: skip
    "root": ("sqrt",),
    "root quotient": ("rsqrt",),
    "quotient": ("div", "reciprocal", "addcdiv", "floor_divide", "remainder", "fmod"),
    "square": ("square",),
    "sum": ("sum", "mean", "cumsum", "nansum", "dot", "scatter_add", "index_add", "trace", "embedding_bag"),
    "root sum square": ("linalg_vector_norm", "norm", "std", "_cdist_forward", "_euclidean_dist"),
    "sum square": ("var", "var_mean"),
    "softmax": ("_softmax", "_safe_softmax"),
    "softmax logarithm": ("_log_softmax",),
    "product": ("mm", "addmm", "mv", "convolution", "mkldnn_rnn_layer", "mkldnn_convolution", "linear"),
    "product activation_product": ("bmm", "baddbmm"),
    "product attention": (
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_attention_math",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention",
    ),
    "normalization": (
        "native_layer_norm",
        "native_group_norm",
        "native_batch_norm",
        "_native_batch_norm_legit",
        "_batch_norm_with_update",
        "_fused_rms_norm",
    ),
    "arithmetic": ("add", "sub", "rsub", "mul", "addcmul", "lerp"),
    "logistic": ("sigmoid",),
    "mask": ("where", "masked_fill", "masked_scatter", "index_put"),
    "loss logarithm": ("binary_cross_entropy",),
    "loss": ("nll_loss_forward", "nll_loss2d_forward", "binary_cross_entropy_with_logits", "_ctc_loss"),
    "loss sum": ("mse_loss", "smooth_l1_loss", "huber_loss"),
    "rectifier kink": ("relu", "leaky_relu", "threshold"),
    "table_lookup": ("embedding",),
    "rearrangement": (
        *("_to_copy", "clone", "copy", "cat", "stack", "index", "index_select", "gather", "repeat"),
        *("constant_pad_nd", "flip", "roll", "contiguous", "lift_fresh", "neg"),
    ),
    "rearrangement extreme": ("amax", "amin", "max", "min", "aminmax"),
}
_TYPES = {
    "_softmax": "softmax",
    "_log_softmax": "log_softmax",
    "_to_copy": "cast",
    "mm": "matmul",
    "bmm": "matmul",
    "addmm": "linear",
    "convolution": "conv2d",
    "native_layer_norm": "layer_norm",
    "native_group_norm": "group_norm",
    "mse_loss": "mse",
    "binary_cross_entropy": "bce",
    "nll_loss_forward": "nll_loss",
    "linalg_vector_norm": "norm",
}
_KINDS = {
    name: (_TYPES.get(name, name), tuple(traits.split()))
    for traits, names in _TRAITS.items()
    for name in names
}

# Operations that write the -inf of a mask on purpose.
MASKS = ("masked_fill", "where", "full", "fill", "triu", "tril", "scalar_tensor", "lift_fresh", "index_put")


def base_name(function: Any) -> str:
    """exp of aten.exp_.default."""
    name = function._schema.name.rsplit("::", 1)[-1] if hasattr(function, "_schema") else str(function)
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def kind_of(name: str, args: tuple) -> tuple[str, tuple]:
    """Type and traits of an operation with these arguments."""
    if name == "pow":
        return "pow", _power(args)
    if name == "mul" and len(args) > 1:
        if args[0] is args[1]:
            return "square", ("square",)
        if not hasattr(args[1], "dim") or args[1].dim() == 0:
            return "scale", ("scaling",)
    if name == "div" and len(args) > 1 and isinstance(args[1], (int, float)) and args[1]:
        return "scale", ("scaling",)
    return _KINDS.get(name, (name.lstrip("_"), ()))


def _power(args: tuple) -> tuple:
    exponent = args[1] if len(args) > 1 else None
    if not isinstance(exponent, (int, float)):
        return ("exponential",) if not isinstance(args[0], (int, float)) else ()
    if exponent == 2:
        return ("square",)
    if exponent < 0:
        return ("quotient",) if exponent == int(exponent) else ("root", "quotient")
    return ("root",) if exponent < 1 else ("arithmetic",)
