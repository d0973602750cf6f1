"""What vLLM says by different flags in different versions; the newest name of each is one of 0.32.

The older names are those of 0.8 to 0.11, whose own words of deprecation named the newer ones.
"""

from __future__ import annotations

ELSEWHERE = (
    "--cudagraph-capture-sizes --cuda-graph-sizes",
    "--eplb-config.num_redundant_experts --num-redundant-experts",
    "--hf-overrides --rope-scaling --rope-theta",
    "--runner --task",
    "--speculative-config.model --speculative-model",
    "--speculative-config.num_speculative_tokens --num-speculative-tokens",
    "--structured-outputs-config.backend --guided-decoding-backend",
)
