"""What SGLang says by different flags in different versions: its own words of deprecation, in 0.5.8 to 0.5.23.

From `srt/server_args.py` and `srt/arg_groups` of the wheels 0.5.8, 0.5.12.post1, 0.5.18, 0.5.23; each row has the
spellings of one thing, the newest first.
"""

from __future__ import annotations

ELSEWHERE = (
    "--attn-dp-size --enable-dp-attention",
    "--cp-strategy --prefill-cp-mode --nsa-prefill-cp-mode",
    "--cuda-graph-backend-decode=disabled --disable-cuda-graph",
    "--cuda-graph-backend-prefill=breakable --enable-breakable-cuda-graph",
    "--cuda-graph-backend-prefill=disabled --disable-piecewise-cuda-graph",
    "--cuda-graph-backend-prefill=full --enforce-piecewise-cuda-graph --enable-piecewise-cuda-graph",
    "--cuda-graph-bs-decode --cuda-graph-bs",
    "--cuda-graph-bs-prefill --piecewise-cuda-graph-tokens",
    "--cuda-graph-max-bs-decode --cuda-graph-max-bs",
    "--cuda-graph-max-bs-prefill --piecewise-cuda-graph-max-tokens",
    "--dsa-decode-backend --nsa-decode-backend",
    "--dsa-prefill-backend --nsa-prefill-backend",
    "--elastic-ep-join-mode=recover --elastic-ep-rejoin",
    "--enable-linear-replayssm-spec --enable-gdn-replayssm-spec",
    "--enable-prefill-cp --enable-prefill-context-parallel --enable-nsa-prefill-context-parallel",
    "--enable-waterfill --enable-deepep-waterfill",
    "--expert-balancedness-report-mode --enable-expert-distribution-metrics",
    "--flashinfer-allreduce-fusion-backend=auto --enable-flashinfer-allreduce-fusion",
    "--image-processor-backend=pil --disable-fast-image-processor",
    "--incremental-streaming-output --stream-output",
    "--mamba-radix-cache-strategy --mamba-scheduler-strategy",
    "--mm-feature-transport=cuda_ipc --keep-mm-feature-on-device",
    "--smg-grpc-mode --grpc-mode",
    "--speculative-draft-window-size --speculative-dflash-draft-window-size",
    "--speculative-ngram-max-trie-depth --speculative-ngram-branch-length",
    "--swa-full-tokens-ratio --hybrid-kvcache-ratio",
    # values
    "--attention-backend=cutedsl_mla --attention-backend=cutlass_mla",
    "--kv-cache-dtype=nvfp4 --kv-cache-dtype=fp4_e2m1",
)
