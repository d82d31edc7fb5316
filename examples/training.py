"""A small network trained by its own gradient kernel: two dense layers on a ring of points."""

import numpy as np

import eqsatad as ea
from eqsatad import library

POINTS, HIDDEN, CLASSES = 64, 16, 2

x = ea.placeholder((POINTS, 2), name="x")
labels = ea.placeholder((POINTS,), name="labels", dtype="int32")
w1, b1 = ea.placeholder((HIDDEN, 2), name="w1"), ea.placeholder((HIDDEN,), name="b1")
w2, b2 = ea.placeholder((CLASSES, HIDDEN), name="w2"), ea.placeholder((CLASSES,), name="b2")

hidden = library.relu(library.dense(x, w1, b1, name="first"))
scores = library.dense(hidden, w2, b2, name="second")
loss = library.mean(library.cross_entropy(scores, labels), name="loss")
weights = (w1, b1, w2, b2)

value = ea.build([loss])
slopes = ea.differentiate(loss, list(weights), head="identity").build()

rng = np.random.default_rng(0)
points = rng.uniform(-1, 1, (POINTS, 2)).astype(np.float32)
data = {"x": points, "labels": (np.hypot(*points.T) < 0.7).astype(np.int32)}
state = {
    w.name: rng.normal(0, 0.5, [int(n.value) for n in w.shape]).astype(np.float32) for w in weights
}

(before,) = value(**data, **state)
for _ in range(300):
    for w, slope in zip(weights, slopes(**data, **state), strict=True):
        state[w.name] = state[w.name] - np.float32(0.5) * slope
(after,) = value(**data, **state)
assert after < 0.3 * before

print(f"loss fell from {float(before):.3f} to {float(after):.3f}")
