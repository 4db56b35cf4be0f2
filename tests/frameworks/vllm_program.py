"""vLLM with and without Gemini: a Llama of dummy weights answers prompts, eager or as vLLM has it by default.

    python vllm_program.py [eager|default [tiny|1b [serve]]]

Of its own memory it takes nine tenths, by gpu_memory_utilization: of the limit, where there is one. It prints how many
tokens each prompt got and whether it stayed within that; what the tokens are nobody computed.

With `serve` it says "ready" then, and from there on answers long prompts, many at once, until its standard input ends:
the card is what such work waits for. At the end it says in JSON when each such batch began and ended, by the monotonic
clock, and how many tokens it had.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import sys
import tempfile
import time
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
BILLION = {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}  # 1.24e9 weights
SIZES = {"tiny": SHAPE, "1b": {**SHAPE, **BILLION}}
LONG, MANY, FEW = 1900, 16, 2  # tokens of a prompt of `serve`, prompts at once, tokens of an answer


def serve(engine: LLM) -> None:
    sampling = SamplingParams(max_tokens=FEW, temperature=0.0, detokenize=False, ignore_eos=True)
    done: list[tuple[int, int, int]] = []
    print("ready", flush=True)
    for number in itertools.count():
        if select.select([0], [], [], 0)[0]:
            break
        # none begins as another did, which would be found in the cache
        prompts = [{"prompt_token_ids": [*divmod(number * MANY + one, 1000), *[7] * LONG]} for one in range(MANY)]
        begin = time.monotonic_ns()
        engine.generate(prompts, sampling, use_tqdm=False)
        done.append((begin, time.monotonic_ns(), MANY * (LONG + 2 + FEW)))
    print(json.dumps(done), flush=True)


def main() -> int:
    how, size, *serves = [*sys.argv[1:], *["eager", "tiny"][len(sys.argv) - 1 :]]
    big = size != "tiny"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(SIZES[size]))
        engine = LLM(
            model=folder,
            load_format="dummy",
            skip_tokenizer_init=True,
            enforce_eager=how == "eager",
            gpu_memory_utilization=PART,
            max_model_len=2048 if big else 256,
            max_num_seqs=MANY if big else 8,
        )
        sampling = SamplingParams(max_tokens=TOKENS, temperature=0.0, detokenize=False, ignore_eos=True)
        prompts = [{"prompt_token_ids": [1, 5, 9]}, {"prompt_token_ids": [1, 7]}]
        for answer in engine.generate(prompts, sampling, use_tqdm=False):
            print(f"answer: {len(answer.outputs[0].token_ids)} tokens", flush=True)
    free, total = torch.cuda.mem_get_info()
    taken = (total - free) / total
    print(f"memory: {'within' if PART - 0.1 < taken < PART + 0.05 else f'{taken:.2f} is not'} its part", flush=True)
    if serves:
        serve(engine)
    return 0


if __name__ == "__main__":
    sys.exit(main())
