"""Attention over the paged KV cache, one request at a time.

Shapes: q [tokens, query heads, dim]; k, v [tokens, kv heads, dim]; the cache's buffers [slots, kv heads, dim];
req_to_token [requests, positions] holds the cache slot of each position of each request.
"""

# ruff: noqa: ARG001, PLR0917 - the parameters are the operators'; what a dense Llama never sets is not looked at

from __future__ import annotations

import torch  # type: ignore[import-not-found]
import torch.nn.functional as F  # type: ignore[import-not-found]  # noqa: N812
from torch import Tensor


def _attend(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, scale: float) -> Tensor:
    """Grouped-query attention: q [t, hq, d] over k, v [s, hk, d]; visible [t, s] says who sees whom. -> [t, hq, d]"""
    group = q.shape[1] // k.shape[1]
    keys = k.to(q.dtype).transpose(0, 1).repeat_interleave(group, 0)
    values = v.to(q.dtype).transpose(0, 1).repeat_interleave(group, 0)
    mask = None if visible is None else visible[None, None]
    out = F.scaled_dot_product_attention(q.transpose(0, 1)[None], keys[None], values[None], attn_mask=mask, scale=scale)
    return out.squeeze(0).transpose(0, 1)


def decode_attention_cpu(
    q: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    k_scale: float,
    v_scale: float,
    out: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    loc: Tensor,
    attn_logits: Tensor,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    sm_scale: float,
    logit_cap: float,
    is_cross: bool = False,
    sliding_window: int = 0,
    encoder_lens: Tensor | None = None,
    sinks: Tensor | None = None,
) -> None:
    """One new token for each request: store its k, v at the slots `loc`, attend to the request's seq_lens[i] tokens."""
    if k is not None and v is not None:
        k_buffer[loc] = k.reshape(-1, *k_buffer.shape[1:]).to(k_buffer.dtype)
        v_buffer[loc] = v.reshape(-1, *v_buffer.shape[1:]).to(v_buffer.dtype)
    for i, length in enumerate(seq_lens.tolist()):
        slots = req_to_token[int(req_pool_indices[i]), :length].long()
        if sliding_window > 0:
            slots = slots[-sliding_window:]
        out[i : i + 1] = _attend(q[i : i + 1], k_buffer[slots], v_buffer[slots], None, sm_scale)


def extend_attention_cpu(
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    out: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    k_scale: float,
    v_scale: float,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    extend_seq_lens: Tensor,
    extend_start_loc: Tensor,
    max_len_extend: int,
    sm_scale: float,
    logit_cap: float,
    is_cross: bool = False,
    sliding_window: int = 0,
    encoder_lens: Tensor | None = None,
    sinks: Tensor | None = None,
    tree_mask: Tensor | None = None,
    is_causal: bool = True,
) -> None:
    """Several new tokens for each request, stored before: the last extend_seq_lens[i] of its seq_lens[i] tokens.

    `tree_mask`, for verifying a draft, is one block [new, new] a request, laid end to end: which new token sees
    which; all of them see the tokens that were there before.
    """
    offset = 0
    sizes = zip(seq_lens.tolist(), extend_seq_lens.tolist(), extend_start_loc.tolist(), strict=True)
    for i, (length, new, start) in enumerate(sizes):
        slots = req_to_token[int(req_pool_indices[i]), :length].long()
        if tree_mask is not None:
            block = tree_mask.view(-1)[offset : offset + new * new].view(new, new).bool()
            offset += new * new
            visible = torch.cat([torch.ones(new, length - new, dtype=torch.bool), block], 1)
        else:
            visible = _causal(length, new, sliding_window, is_causal)
        out[start : start + new] = _attend(q[start : start + new], k_buffer[slots], v_buffer[slots], visible, sm_scale)


def _causal(length: int, new: int, sliding_window: int, is_causal: bool) -> Tensor:
    """Who of the last `new` of `length` tokens sees whom: [new, length]."""
    if not is_causal:
        return torch.ones(new, length, dtype=torch.bool)
    query = torch.arange(length - new, length).unsqueeze(1)
    key = torch.arange(length).unsqueeze(0)
    visible = key <= query
    return visible & (key > query - sliding_window) if sliding_window > 0 else visible


_TAIL = "bool is_cross=False, int sliding_window=0, Tensor? encoder_lens=None, Tensor? sinks=None"
_DECODE = (
    "decode_attention_cpu(Tensor q, Tensor(a!) k_buffer, Tensor(b!) v_buffer, float k_scale, float v_scale,"
    " Tensor(c!) out, Tensor? k, Tensor? v, Tensor loc, Tensor attn_logits, Tensor req_to_token,"
    f" Tensor req_pool_indices, Tensor seq_lens, float sm_scale, float logit_cap, {_TAIL}) -> ()"
)
_EXTEND = (
    "extend_attention_cpu(Tensor q, Tensor? k, Tensor? v, Tensor(a!) out, Tensor k_buffer, Tensor v_buffer,"
    " float k_scale, float v_scale, Tensor req_to_token, Tensor req_pool_indices, Tensor seq_lens,"
    " Tensor extend_seq_lens, Tensor extend_start_loc, int max_len_extend, float sm_scale, float logit_cap,"
    f" {_TAIL}, Tensor? tree_mask=None, bool is_causal=True) -> ()"
)

LIBRARY = torch.library.Library("sgl_kernel", "DEF")  # the operators live as long as this object
LIBRARY.define(_DECODE)
LIBRARY.impl("decode_attention_cpu", decode_attention_cpu, "CPU")
LIBRARY.define(_EXTEND)
LIBRARY.impl("extend_attention_cpu", extend_attention_cpu, "CPU")
