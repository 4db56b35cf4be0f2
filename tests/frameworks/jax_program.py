"""What JAX does: compiled functions, a training step, its own memory pool."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
from cases import case, main

WIDTH = 128


@case
def a_card() -> object:
    (found,) = jax.devices()
    return found.platform, found.id


@case
def bytes_go_there_and_back() -> object:
    sent = np.arange(1 << 20, dtype=np.int32)
    return bool((np.asarray(jax.device_put(sent)) == sent).all())


@case
def a_compiled_function() -> object:
    out = jax.jit(lambda x: jnp.sin(x) @ x.T + 1)(jnp.ones((WIDTH, WIDTH)))
    return out.block_until_ready().shape


def loss(weights: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    hidden = jax.nn.gelu(x @ weights["up"])
    return jnp.square(hidden @ weights["down"] - x).mean()


@case
def training_steps() -> object:
    @jax.jit
    def step(weights: dict[str, jax.Array], x: jax.Array) -> dict[str, jax.Array]:
        slopes = jax.grad(loss)(weights, x)
        return jax.tree.map(lambda w, slope: w - 0.01 * slope, weights, slopes)

    weights = {"up": jnp.ones((WIDTH, 4 * WIDTH)), "down": jnp.ones((4 * WIDTH, WIDTH))}
    for _ in range(5):
        weights = step(weights, jnp.ones((32, WIDTH)))
    jax.block_until_ready(weights)
    return {name: value.shape for name, value in sorted(weights.items())}


@case
def a_loop_on_the_card() -> object:
    out = jax.lax.fori_loop(0, 10, lambda _, x: x * 1.0, jnp.ones(1000))
    return out.block_until_ready().shape


@case
def out_of_memory_and_after() -> object:
    held = []
    try:
        while True:
            held.append(jax.block_until_ready(jnp.arange(64 << 20, dtype=np.int32)))  # by a kernel: writes no bytes
    except Exception as error:
        said = str(error).partition(":")[0]
    held.clear()
    return said, bytes_go_there_and_back()


if __name__ == "__main__":
    sys.exit(main())
