"""JAX: a transformer block trained with jit, grad and scan; vmap, a sort, an FFT, a solve and random numbers."""
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import report

WIDTH, HEADS, TOKENS = 512, 8, 256


def block(weights, x):
    query, key, mine = jnp.split(x @ weights["in"], 3, axis=-1)
    parts = [each.reshape(*each.shape[:-1], HEADS, WIDTH // HEADS).swapaxes(1, 2) for each in (query, key, mine)]
    scores = jax.nn.softmax(parts[0] @ parts[1].swapaxes(-1, -2) / 8.0)
    x = x + (scores @ parts[2]).swapaxes(1, 2).reshape(x.shape) @ weights["out"]
    return x + jax.nn.gelu(x @ weights["up"]) @ weights["down"]


def loss(layers, x):
    y, _ = jax.lax.scan(lambda at, weights: (block(weights, at), None), x, layers)
    return jnp.mean((y - jnp.roll(x, 1, axis=1)) ** 2)


@jax.jit
def train(layers, x):
    value, gradients = jax.value_and_grad(loss)(layers, x)
    return jax.tree.map(lambda weight, gradient: weight - 0.01 * gradient, layers, gradients), value


keys = jax.random.split(jax.random.key(0), 6)
shapes = {"in": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
layers = {name: 0.02 * jax.random.normal(key, (4, *shape)) for (name, shape), key in zip(shapes.items(), keys)}
batch = jax.random.normal(keys[4], (16, TOKENS, WIDTH))
values: list[float] = []


def step() -> None:
    global layers
    layers, value = train(layers, batch)
    values.append(float(value))


report.timed("jax: training step", step)
report.result("jax: losses", values)

matrix = jax.random.normal(keys[5], (512, 512)) + 30 * jnp.eye(512)
many = jax.jit(jax.vmap(lambda row: jnp.linalg.norm(jnp.linalg.solve(matrix, row))))(matrix[:32])
report.result("jax: solves", [float(jnp.sum(many)), float(jnp.abs(jnp.fft.fft(matrix[0])).sum())])
ordered = jax.jit(jnp.sort)(jax.random.uniform(keys[5], (1 << 20,)))
report.result("jax: sort", [float(ordered[at]) for at in (0, 1 << 19, -1)], within=1e-6)
