"""Trains with JAX, on one host or many: `brimful.Loader` gives NumPy arrays, JAX puts them on its device.

jax_loop.py [SHARDS]. Each process of a job reads its own share, given by rank and world size.
"""

import jax
import jax.numpy as jnp
import tiny

import brimful
from brimful import transforms as T

FEATURES = 3 * 32 * 32


def loss_of(weights: jax.Array, images: jax.Array, labels: jax.Array) -> jax.Array:
    scores = jax.nn.log_softmax(images.reshape(len(images), -1) @ weights)
    return -jnp.take_along_axis(scores, labels[:, None] % tiny.CLASSES, axis=1).mean()


@jax.jit
def step(weights: jax.Array, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    loss, gradient = jax.value_and_grad(loss_of)(weights, images, labels)
    return weights - 0.001 * gradient, loss


def main() -> None:
    shards = tiny.shards()
    steps = [T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([0.5] * 3, [0.25] * 3)]
    dataset = brimful.ShardDataset(shards, fields=tiny.FIELDS, transform=T.Compose(steps))
    # drop_last: one shape, so that the step is compiled once.
    share = {"rank": jax.process_index(), "world_size": jax.process_count()}
    loader = brimful.Loader(dataset, batch_size=16, shuffle=True, drop_last=True, layout="NHWC", **share)
    weights = jnp.zeros((FEATURES, tiny.CLASSES))
    for epoch in range(2):
        for images, labels in loader:
            weights, loss = step(weights, jax.device_put(images), jax.device_put(labels))
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(loader.explain())
    tiny.remove(shards)


if __name__ == "__main__":
    main()
