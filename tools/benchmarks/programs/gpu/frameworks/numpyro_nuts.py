"""NumPyro: NUTS on JAX."""
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpyro
import report
from numpyro import distributions
from numpyro.infer import MCMC, NUTS

inputs = jax.random.normal(jax.random.key(1), (200, 4))
outputs = inputs @ jnp.array([1.0, -2.0, 0.5, 0.0]) + 0.1 * jax.random.normal(jax.random.key(2), (200,))


def model():
    weights = numpyro.sample("weights", distributions.Normal(jnp.zeros(4), 1))
    noise = numpyro.sample("noise", distributions.Exponential(1.0))
    numpyro.sample("outputs", distributions.Normal(inputs @ weights, noise), obs=outputs)


chain = MCMC(NUTS(model), num_warmup=50, num_samples=50, progress_bar=False)
report.timed("numpyro: 100 samples", lambda: chain.run(jax.random.key(3)), steps=3, warm_up=1)
report.result("numpyro: means", [float(mean) for mean in chain.get_samples()["weights"].mean(axis=0)[:3]], within=0.02)
