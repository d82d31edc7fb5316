"""Two convolutional networks learn handwritten digits with kernels made here alone.

Each is an operator in index notation; its forward program gives the loss and what is worth
saving, its backward program the gradients. NumPy only moves the parameters. The digits are those
of scikit-learn.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

import eqsatad as ea
from eqsatad import library as nn

BATCH, CLASSES = 128, 10
Arrays = dict[str, NDArray[np.generic]]
Scores = Callable[[ea.Tensor, list[ea.Tensor]], ea.Tensor]


def small(x: ea.Tensor, weights: list[ea.Tensor]) -> ea.Tensor:
    """Two flat convolutions, an average pooling and two dense layers, over 28 x 14 points.

    Channels are last, as some libraries have them, and moved where that is convenient.
    """
    w1, b1, w2, b2, w3, b3, w4, b4 = weights
    t = nn.transpose(x, (0, 3, 1, 2), name="channels_first")
    t = nn.relu(nn.conv2d(t, w1, b1, name="conv1"), name="relu1")
    t = nn.relu(nn.conv2d(t, w2, b2, name="conv2"), name="relu2")
    t = nn.transpose(nn.avg_pool(t, 2, stride=2), (0, 2, 3, 1), name="pooled")
    t = nn.relu(nn.dense(nn.flatten(t), w3, b3, name="dense1"), name="relu3")
    return nn.dense(t, w4, b4, name="scores")


def lenet(x: ea.Tensor, weights: list[ea.Tensor]) -> ea.Tensor:
    """Two convolutions, each with a max pooling, and two dense layers, over 8 x 8 points."""
    w1, b1, w2, b2, w3, b3, w4, b4 = weights
    t = nn.relu(nn.conv2d(x, w1, b1, pad=1, name="conv1"), name="relu1")
    t = nn.max_pool(t, 2, name="pool1")
    t = nn.relu(nn.conv2d(t, w2, b2, pad=1, name="conv2"), name="relu2")
    t = nn.flatten(nn.max_pool(t, 2, name="pool2"))
    t = nn.relu(nn.dense(t, w3, b3, name="dense1"), name="relu3")
    return nn.dense(t, w4, b4, name="scores")


def tall(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """The images as 28 x 14 points, channels last: rows three times, and a border."""
    return np.pad(np.repeat(images, 3, axis=1), ((0, 0), (2, 2), (3, 3)))[..., None]


def square(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """The images as they are, channels first."""
    return images[:, None]


NETWORKS: dict[str, tuple[Scores, Callable[..., NDArray[np.float32]], list[tuple[int, ...]]]] = {
    "small": (small, tall, [(4, 1, 3, 5), (4, 4, 3, 5), (16, 144), (CLASSES, 16)]),
    "lenet": (lenet, square, [(6, 1, 3, 3), (16, 6, 3, 3), (32, 64), (CLASSES, 32)]),
}


class Network:
    """A network with its kernels and its parameters."""

    def __init__(self, scores: Scores, pixels: tuple[int, ...], shapes: list[tuple[int, ...]]):
        x = ea.placeholder((BATCH, *pixels), name="x")
        labels = ea.placeholder((BATCH,), name="labels", dtype="int32")
        rng = np.random.default_rng(0)
        self.state: Arrays = {}
        weights: list[ea.Tensor] = []
        for n, shape in enumerate(shapes, start=1):
            scale = np.sqrt(2 / np.prod(shape[1:]))
            self.state[f"w{n}"] = rng.normal(0, scale, shape).astype(np.float32)
            self.state[f"b{n}"] = np.zeros(shape[0], np.float32)
            weights += [
                ea.placeholder(shape, name=f"w{n}"),
                ea.placeholder(shape[:1], name=f"b{n}"),
            ]
        given = scores(x, weights)
        loss = nn.mean(nn.cross_entropy(given, labels), name="loss")
        ahead, back = ea.vjp(loss, weights)
        self.saved = [tensor.name for tensor in ahead.saved]
        self.value, self.slopes = ahead.build(), back.build()
        best = ea.reduce_axis((0, CLASSES), name="k")
        answer = ea.compute((BATCH,), lambda n: ea.argmax(given[n, best], axis=best), name="answer")
        self.answer = ea.build([answer])
        self.means = {name: (np.zeros_like(w), np.zeros_like(w)) for name, w in self.state.items()}

    def learn(self, x: NDArray[np.float32], labels: NDArray[np.int32], step: int) -> float:
        """One step down the slope (Adam); returns the loss before it."""
        arrays = {"x": x, "labels": labels, **self.state}
        loss, *saved = self.value(**{name: arrays[name] for name in self.value.inputs})
        arrays |= dict(zip(self.saved, saved, strict=True)) | {"head": np.ones((), np.float32)}
        slopes = self.slopes(**{name: arrays[name] for name in self.slopes.inputs})
        for (name, weight), slope in zip(self.state.items(), slopes, strict=True):
            first, second = self.means[name]
            first += 0.1 * (slope - first)
            second += 0.01 * (slope * slope - second)
            width = np.sqrt(second / (1 - 0.99**step)) + 1e-8
            self.state[name] = weight - 0.005 * (first / (1 - 0.9**step)) / width
        return float(loss)

    def accuracy(self, x: NDArray[np.float32], labels: NDArray[np.int32]) -> float:
        """The share of right answers, over as many whole batches as there are."""
        right = 0
        starts = range(0, len(x) - BATCH + 1, BATCH)
        for start in starts:
            taken = slice(start, start + BATCH)
            arrays = {"x": x[taken], **self.state}
            (answer,) = self.answer(**{name: arrays[name] for name in self.answer.inputs})
            right += int((answer == labels[taken]).sum())
        return right / (len(starts) * BATCH)


def train(name: str, steps: int) -> float:
    """The accuracy on the training images after ``steps`` steps."""
    scores, shaped, shapes = NETWORKS[name]
    digits = load_digits()
    x = shaped((digits.images / 16).astype(np.float32))
    labels = digits.target.astype(np.int32)
    start = time.perf_counter()
    network = Network(scores, x.shape[1:], shapes)
    print(f"{name}: kernels after {time.perf_counter() - start:.1f} s", flush=True)
    rng = np.random.default_rng(1)
    for step in range(1, steps + 1):
        chosen = rng.choice(len(x), BATCH, replace=False)
        loss = network.learn(x[chosen], labels[chosen], step)
        if step % 50 == 0:
            print(f"{name}: step {step}, loss {loss:.3f}", flush=True)
    accuracy = network.accuracy(x, labels)
    seconds = time.perf_counter() - start
    print(f"{name}: {accuracy:.1%} of the training digits right, after {seconds:.1f} s", flush=True)
    return accuracy


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    for network in NETWORKS:
        assert train(network, parser.parse_args().steps) >= 0.95
    print("both networks know their digits")
