"""The operators that a program may call: they compute with tensors. Others in torch can open files, for example.

The export of a model that needs another operator fails and names it; add it here if it only computes.
"""

from __future__ import annotations

_OF_OUR_MODELS = """
    __and__.Tensor __or__.Tensor _assert_tensor_metadata.default add.Tensor addmm.default arange.default argmax.default
    baddbmm.default batch_norm.default bitwise_not.default cat.default chunk.default clamp_min.default
    contiguous.default conv2d.default conv_transpose2d.input cos.default detach.default detach_.default
    diag_embed.default diagonal.default diff.default div.Tensor dropout.default einsum.default embedding.default
    exp.default expand.default expand_as.default flatten.using_ints gelu.default gt.Tensor index.Tensor
    index_select.default layer_norm.default le.Tensor lift_fresh_copy.default linalg_solve_ex.default
    linalg_vector_norm.default linear.default mT.default matmul.default mean.dim movedim.int mul.Tensor numpy_T.default
    pad.default permute.default promote_types.default relu.default reshape.default rms_norm.default rsqrt.default
    scaled_dot_product_attention.default select.int silu.default sin.default slice.Tensor softmax.int split.Tensor
    split_with_sizes.default square.default stack.default sub.Tensor sum.dim_IntList sym_size.int to.dtype
    transpose.int unbind.int unflatten.int unsqueeze.default view.default view_as.default where.self zeros.default
"""
_OF_PATHWAYS = """
    add_.Tensor addcmul.default alias.default lerp.Tensor log1p.default logsumexp.default movedim.intlist
"""
_OF_TABLE_ENCODERS = """
    clip.default concatenate.default eq.Tensor floor.default ge.Tensor isnan.default lt.Scalar where.ScalarSelf
"""
_OF_OTHER_PACKAGES = """
    abs.default amax.default amin.default bmm.default clamp.default clone.default elu.default gather.default
    group_norm.default leaky_relu.default log.default log_softmax.int maximum.default minimum.default mish.default
    mm.default neg.default pow.Tensor_Scalar reciprocal.default rsub.Scalar sigmoid.default softplus.default
    sqrt.default squeeze.dim tanh.default
"""
_OF_SIZES = "add sub mul floordiv neg getitem eq ne le lt ge gt"

OPERATORS = frozenset(
    [
        f"torch.ops.aten.{name}"
        for name in (_OF_OUR_MODELS + _OF_PATHWAYS + _OF_TABLE_ENCODERS + _OF_OTHER_PACKAGES).split()
    ]
    + [f"_operator.{name}" for name in _OF_SIZES.split()]
)
