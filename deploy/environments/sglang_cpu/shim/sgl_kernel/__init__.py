"""A stand-in, in plain torch, for the CPU build of SGLang's kernel package.

The `sglang-kernel` on PyPI holds CUDA binaries only and comes without sources, so SGLang's own CPU engine
(SGLANG_USE_CPU_ENGINE=1 with the attention backend intel_amx) has nothing to import. This package has the operators
that the engine calls for a dense Llama model, with and without EAGLE and EAGLE-3. It is written from the call sites;
nothing is copied. It is slow, and meant for tests and demonstrations.

SGLang looks the attention operators up as torch.ops.sgl_kernel.NAME and imports the others from here by name.
"""

from __future__ import annotations

from ._attention import decode_attention_cpu, extend_attention_cpu
from ._cache import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    copy_all_layer_kv_cache_cpu,
)
from ._tree import (
    build_tree_kernel_efficient_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
    verify_tree_greedy_cpu,
)

__version__ = "0.4.10+torchshim"  # SGLang 0.5.23 asks for at least 0.4.10

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "decode_attention_cpu",
    "extend_attention_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
]
