"""Models of Keras, Flax, Equinox and plain JAX, with random weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.tensor_spec import Array
from tests.benchmarks.newcomers.rows import Made, Row


def noise(*shapes: tuple[int, ...]) -> Callable[[], list[Array]]:
    """Return a maker of smooth float32 noise."""
    rng = np.random.default_rng(0)
    return lambda: [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def ids(length: int, words: int = 100) -> Callable[[], list[Array]]:
    rng = np.random.default_rng(0)
    return lambda: [rng.integers(1, words, (1, length)).astype(np.int32)]


def keras_row(name: str, build: Callable[[], Any], inputs: Callable[[], list[Array]], **rest: Any) -> Row:
    file = rest.pop("file", "model.keras")

    def make(folder: Path) -> Made:
        import keras

        keras.utils.set_random_seed(0)
        model = build()
        samples = [inputs() for _ in range(2)]
        answers = [
            [
                np.asarray(leaf)
                for leaf in keras.tree.flatten(model(s if len(s) > 1 else s[0], training=False))
            ]
            for s in samples
        ]
        if file == "Python":
            return Made(model, samples, answers)
        model.save(folder / file)
        return Made(folder / file, samples, answers)

    return Row(name, "Keras", make, file if file == "Python" else Path(file).suffix, **rest)


def jax_row(
    name: str, framework: str, build: Callable[[], Any], inputs: Callable[[], list[Array]], **rest: Any
) -> Row:
    def make(folder: Path) -> Made:
        import jax

        function = build()
        samples = [inputs() for _ in range(2)]
        answers = [[np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(function(*s))] for s in samples]
        return Made(function, samples, answers, tuple(samples[0]))

    return Row(name, framework, make, "Python", **rest)


def rows() -> Iterator[Row]:
    yield keras_row("MobileNetV2", application("MobileNetV2", alpha=0.35), noise((1, 96, 96, 3)))
    yield keras_row("ConvNeXt block, LayerNormalization", convnext, noise((1, 32, 32, 3)), file="Python")
    yield keras_row("U-Net", unet, noise((1, 32, 32, 1)), file="Python")
    yield keras_row(
        "bidirectional LSTM of texts", bilstm, ids(20), file="Python", refused="try KERAS_BACKEND=torch"
    )
    yield keras_row("GRU, two inputs", two_inputs, noise((1, 12, 4), (1, 3)))
    yield keras_row("transformer block, MultiHeadAttention", attention, ids(16), file="Python")
    yield keras_row("ConvLSTM2D", convlstm, noise((1, 4, 16, 16, 1)), file="Python")
    yield keras_row("Conv1D, separable, causal", conv1d, noise((1, 64, 3)), file="Python")
    yield keras_row(
        "weights in HDF5", conv1d, noise((1, 64, 3)), file="model.h5", refused='model.save("model.keras")'
    )
    yield jax_row("MLP, a jitted function", "JAX", jax_mlp, noise((1, 16)), known=True)
    yield jax_row("attention, einsum", "JAX", jax_attention, noise((1, 8, 16)))
    yield jax_row("recurrent loop, lax.scan", "JAX", jax_scan, noise((10, 4)))
    yield jax_row("convolutions", "Flax nnx", flax_cnn, noise((1, 28, 28, 1)))
    yield jax_row("transformer encoder layer", "Flax nnx", flax_encoder, noise((1, 8, 32)))
    yield jax_row(
        "Linen network, a lambda", "Flax Linen", linen, noise((1, 16, 16, 3)), refused="pass them by name"
    )
    yield jax_row("MLP", "Equinox", equinox_mlp, noise((8,)))
    yield jax_row("convolutions under vmap", "Equinox", equinox_cnn, noise((2, 1, 16, 16)))


def application(name: str, **settings: Any) -> Callable[[], Any]:
    def build() -> Any:
        import keras

        model = getattr(keras.applications, name)(
            input_shape=(96, 96, 3), weights=None, classes=10, **settings
        )
        normalizations = [part for part in model.layers if isinstance(part, keras.layers.BatchNormalization)]
        for part in normalizations:  # untrained, the values would fade to nothing
            part.momentum = 0.0
        model(np.random.default_rng(0).normal(size=(8, 96, 96, 3)).astype(np.float32), training=True)
        return model

    return build


def convnext() -> Any:
    import keras
    from keras import layers

    picture = keras.Input((32, 32, 3))
    x = skip = layers.Conv2D(16, 4, 4)(picture)
    x = layers.LayerNormalization()(layers.DepthwiseConv2D(7, padding="same")(x))
    x = layers.Dense(16)(layers.Dense(64, activation="gelu")(x)) + skip
    return keras.Model(picture, layers.Dense(5)(layers.GlobalAveragePooling2D()(x)))


def unet() -> Any:
    import keras
    from keras import layers

    picture = keras.Input((32, 32, 1))
    one = layers.Conv2D(8, 3, padding="same", activation="relu")(picture)
    two = layers.Conv2D(16, 3, padding="same", activation="relu")(layers.MaxPooling2D()(one))
    up = layers.UpSampling2D(interpolation="bilinear")(two)
    joined = layers.Concatenate()([layers.Conv2DTranspose(8, 2, 2)(two), up, one])
    return keras.Model(picture, layers.Conv2D(2, 1, activation="softmax")(joined))


def bilstm() -> Any:
    import keras
    from keras import layers

    words = keras.Input((20,), dtype="int32")
    x = layers.Bidirectional(layers.LSTM(16, return_sequences=True))(layers.Embedding(100, 16)(words))
    return keras.Model(words, layers.Dense(3, activation="softmax")(layers.GlobalMaxPooling1D()(x)))


def two_inputs() -> Any:
    import keras
    from keras import layers

    series, facts = keras.Input((12, 4), name="series"), keras.Input((3,), name="facts")
    joined = layers.Concatenate()([layers.GRU(16)(series), layers.Dense(8, activation="swish")(facts)])
    return keras.Model([series, facts], {"value": layers.Dense(1)(joined), "risk": layers.Dense(2)(joined)})


def attention() -> Any:
    import keras
    from keras import layers

    words = keras.Input((16,), dtype="int32")
    x = layers.Embedding(100, 32)(words)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 8)(x, x))
    return keras.Model(words, layers.Dense(4)(layers.GlobalAveragePooling1D()(x)))


def convlstm() -> Any:
    import keras
    from keras import layers

    frames = keras.Input((4, 16, 16, 1))
    return keras.Model(frames, layers.Conv2D(1, 1)(layers.ConvLSTM2D(4, 3, padding="same")(frames)))


def conv1d() -> Any:
    import keras
    from keras import layers

    return keras.Sequential(
        [
            keras.Input((64, 3)),
            layers.Conv1D(8, 3, padding="causal", dilation_rate=2, activation="elu"),
            layers.SeparableConv1D(8, 3, strides=2),
            layers.BatchNormalization(),
            layers.LeakyReLU(),
            layers.MaxPooling1D(),
            layers.Flatten(),
            layers.Dense(3),
        ]
    )


def jax_mlp() -> Any:
    import jax

    keys = jax.random.split(jax.random.key(0), 2)
    one, two = jax.random.normal(keys[0], (16, 32)) / 4, jax.random.normal(keys[1], (32, 4)) / 5

    @jax.jit
    def classify(features: Any) -> Any:
        return jax.nn.softmax(jax.nn.gelu(features @ one) @ two)

    return classify


def jax_attention() -> Any:
    import jax
    from jax import numpy as jnp

    weights = jax.random.normal(jax.random.key(0), (3, 16, 16)) / 4

    def attend(x: Any) -> dict[str, Any]:
        q, k, v = jnp.einsum("bld,ndh->nblh", x, weights)
        scores = jnp.einsum("bqh,bkh->bqk", q, k) / 4
        scores = jnp.where(jnp.tril(jnp.ones((8, 8), bool)), scores, -1e9)
        return {"mixed": jax.nn.softmax(scores) @ v, "last": v[:, -1]}

    return attend


def jax_scan() -> Any:
    import jax
    from jax import numpy as jnp

    weights = jax.random.normal(jax.random.key(0), (12, 8)) / 3

    def recur(series: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            state = jnp.tanh(jnp.concatenate([state, x]) @ weights)
            return state, state.sum()

        return jax.lax.scan(step, jnp.zeros(8), series)

    return recur


def flax_cnn() -> Any:
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self) -> None:
            rngs = nnx.Rngs(0)
            self.conv, self.norm = nnx.Conv(1, 8, (3, 3), rngs=rngs), nnx.BatchNorm(8, rngs=rngs)
            self.head = nnx.Linear(8 * 14 * 14, 10, rngs=rngs)

        def __call__(self, picture: Any) -> Any:
            x = nnx.relu(self.norm(self.conv(picture)))
            x = nnx.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
            return self.head(x.reshape(x.shape[0], -1))

    net = Net()
    net.eval()
    return net


def flax_encoder() -> Any:
    from flax import nnx

    class Layer(nnx.Module):
        def __init__(self) -> None:
            rngs = nnx.Rngs(0)
            self.attention = nnx.MultiHeadAttention(num_heads=4, in_features=32, decode=False, rngs=rngs)
            self.norm, self.more = nnx.LayerNorm(32, rngs=rngs), nnx.Linear(32, 64, rngs=rngs)
            self.less = nnx.Linear(64, 32, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            x = x + self.attention(self.norm(x))
            return x + self.less(nnx.gelu(self.more(x)))

    return Layer()


def linen() -> Any:
    import jax
    from flax import linen

    class Net(linen.Module):
        @linen.compact
        def __call__(self, picture: Any) -> Any:
            x = linen.GroupNorm(num_groups=2)(linen.Conv(8, (3, 3), strides=2)(picture))
            x = linen.max_pool(linen.silu(x), (2, 2), (2, 2))
            return linen.Dense(5)(x.mean((1, 2)))

    net = Net()
    variables = net.init(jax.random.key(0), np.zeros((1, 16, 16, 3), np.float32))
    return lambda picture: net.apply(variables, picture)


def equinox_mlp() -> Any:
    import equinox
    import jax

    return equinox.nn.MLP(8, 3, 16, 2, key=jax.random.key(0))


def equinox_cnn() -> Any:
    import equinox
    import jax

    key = jax.random.key(0)
    net = equinox.nn.Sequential(
        [
            equinox.nn.Conv2d(1, 4, 3, key=key),
            equinox.nn.Lambda(jax.nn.relu),
            equinox.nn.MaxPool2d(2, 2),
            equinox.nn.Lambda(jax.numpy.ravel),
            equinox.nn.Linear(196, 5, key=key),
        ]
    )
    return jax.vmap(net)
