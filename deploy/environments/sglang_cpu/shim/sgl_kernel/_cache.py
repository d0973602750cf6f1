"""Which cache slot belongs to which position of which request.

req_to_token [requests, positions] holds the slot of each position; req_pool_indices [batch] says which row of it
a request of the batch has; pool_len is its number of positions.
"""

# ruff: noqa: ARG001, PLR0917 - the parameters are the operators'

from __future__ import annotations

import ctypes

import torch  # type: ignore[import-not-found]
from torch import Tensor


def assign_req_to_token_pool_cpu(
    req_pool_indices: Tensor, req_to_token: Tensor, start: Tensor, end: Tensor, out_cache_loc: Tensor, pool_len: int
) -> None:
    """Give the positions start[i]:end[i] of each request the next slots of out_cache_loc [sum of end - start]."""
    taken = 0
    for row, first, last in zip(req_pool_indices.tolist(), start.tolist(), end.tolist(), strict=True):
        slots = out_cache_loc[taken : taken + last - first]
        req_to_token[row, first:last] = slots.to(req_to_token.dtype)
        taken += last - first


def assign_extend_cache_locs_cpu(
    req_pool_indices: Tensor, req_to_token: Tensor, start: Tensor, end: Tensor, out_cache_loc: Tensor, pool_len: int
) -> None:
    """The other way round: write the slots of the positions start[i]:end[i] into out_cache_loc."""
    filled = 0
    for row, first, last in zip(req_pool_indices.tolist(), start.tolist(), end.tolist(), strict=True):
        slots = req_to_token[row, first:last]
        out_cache_loc[filled : filled + last - first] = slots.to(out_cache_loc.dtype)
        filled += last - first


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    seq_lens: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
    topk: int,
    num_cols: int,
) -> None:
    """Write the topk * num_cols slots behind each request's tokens into out_cache_loc [batch * topk * num_cols]."""
    count = topk * num_cols
    for i, (row, length) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)):
        slots = req_to_token[row, length : length + count]
        out_cache_loc[i * count : (i + 1) * count] = slots.to(out_cache_loc.dtype)


def build_draft_decode_metadata_cpu(
    req_to_token: Tensor, req_pool_indices: Tensor, seq_lens: Tensor, topk: int, num_steps: int, pool_len: int
) -> Tensor:
    """A table like req_to_token with a row for each of a request's topk branches. -> [batch * topk, pool_len]

    Each has the request's own slots, then the num_steps slots of its branch.
    """
    table = torch.zeros((seq_lens.shape[0] * topk, pool_len), dtype=req_to_token.dtype)
    for i, (row, length) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)):
        for branch in range(topk):
            begin = length + branch * num_steps
            steps = min(num_steps, pool_len - length)
            table[i * topk + branch, :length] = req_to_token[row, :length]
            table[i * topk + branch, length : length + steps] = req_to_token[row, begin : begin + steps]
    return table


def copy_all_layer_kv_cache_cpu(data_ptrs: Tensor, strides: Tensor, tgt_loc: Tensor, src_loc: Tensor) -> None:
    """Copy cache slots src_loc to tgt_loc in each layer's buffer: its address, and its bytes a slot. May overlap."""
    for address, stride in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        rows = [ctypes.string_at(address + slot * stride, stride) for slot in src_loc.tolist()]
        for slot, row in zip(tgt_loc.tolist(), rows, strict=True):
            ctypes.memmove(address + slot * stride, row, stride)
