"""vLLM with and without Gemini: a small Llama of dummy weights answers prompts, eager or as vLLM has it by default.

    python vllm_program.py [eager|default]

Of its own memory it takes nine tenths, by gpu_memory_utilization: of the limit, where there is one. It prints how many
tokens each prompt got and whether it stayed within that; what the tokens are nobody computed.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

# Its new runner waits for a count that nobody computes, the sampler's kernels want nvcc.
os.environ |= {
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}

import torch
from vllm import LLM, SamplingParams

PART = 0.9
TOKENS = 16
SHAPE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 1024,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}


def main() -> int:
    how = sys.argv[1] if len(sys.argv) > 1 else "eager"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(SHAPE))
        engine = LLM(
            model=folder,
            load_format="dummy",
            skip_tokenizer_init=True,
            enforce_eager=how == "eager",
            gpu_memory_utilization=PART,
            max_model_len=256,
            max_num_seqs=8,
        )
        sampling = SamplingParams(max_tokens=TOKENS, temperature=0.0, detokenize=False, ignore_eos=True)
        prompts = [{"prompt_token_ids": [1, 5, 9]}, {"prompt_token_ids": [1, 7]}]
        for answer in engine.generate(prompts, sampling, use_tqdm=False):
            print(f"answer: {len(answer.outputs[0].token_ids)} tokens", flush=True)
    free, total = torch.cuda.mem_get_info()
    taken = (total - free) / total
    print(f"memory: {'within' if PART - 0.1 < taken < PART + 0.05 else f'{taken:.2f} is not'} its part", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
