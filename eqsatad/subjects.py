"""What the statistics of rules are made from: small gradients, and questions to the simplifier."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from eqsatad.terms.nodes import Expr, Tensor

Bounds = Mapping[Expr, tuple[int | None, int | None]]


@dataclass(frozen=True, eq=False)
class Subject:
    """A gradient of the set; ``sizes`` are numbers for symbolic extents."""

    name: str
    output: Tensor
    inputs: tuple[Tensor, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)
    head: str | None = None


@dataclass(frozen=True, eq=False)
class Question:
    """An index expression or a condition for the simplifier; ``bounds`` are those of variables."""

    name: str
    expr: Expr
    bounds: Bounds = field(default_factory=dict)


def operators() -> Iterator[Subject]:
    """Gradients of operators of the library, small enough to be counted many times."""
    from eqsatad import library as nn
    from eqsatad.terms.builders import placeholder

    image, rows = (1, 2, 6, 6), (3, 5)
    makers: Sequence[tuple[str, Callable[..., Tensor], Sequence[Sequence[int]]]] = (
        ("matmul", nn.matmul, ((3, 4), (4, 2))),
        ("dense", nn.dense, ((3, 4), (2, 4), (2,))),
        ("convolution", lambda x, w: nn.conv2d(x, w, pad=1), (image, (2, 2, 3, 3))),
        ("strided convolution", lambda x, w: nn.conv2d(x, w, stride=2), (image, (2, 2, 3, 3))),
        (
            "dilated convolution",
            lambda x, w: nn.conv1d(x, w, stride=3, dilation=2),
            ((1, 2, 13), (2, 2, 3)),
        ),
        ("transposed convolution", lambda x, w: nn.conv2d_transpose(x, w, stride=2),
         ((1, 2, 3, 3), (2, 2, 2, 2))),
        ("max pooling", lambda x: nn.max_pool(x, 2), (image,)),
        ("average pooling", lambda x: nn.avg_pool(x, 3, stride=2, pad=1), ((1, 1, 7, 7),)),
        ("adaptive pooling", lambda x: nn.adaptive_avg_pool(x, (2, 3)), ((1, 1, 5, 7),)),
        ("softmax", nn.softmax, (rows,)),
        ("log softmax", nn.log_softmax, (rows,)),
        ("layer norm", nn.layer_norm, (rows, (5,), (5,))),
        ("rms norm", nn.rms_norm, (rows, (5,))),
        ("batch norm", nn.batch_norm, ((3, 2, 2, 2), (2,), (2,))),
        ("response norm", nn.local_response_norm, ((1, 5, 2, 2),)),
        ("cumulative sum", nn.cumsum, ((8,),)),
        ("maximum", lambda x: nn.max(x, 1), (rows,)),
        ("mean", lambda x: nn.mean(x, 0), (rows,)),
        ("reshape", lambda x: nn.reshape(x, (4, 6)), ((2, 3, 4),)),
        ("concatenate", lambda x, y: nn.concatenate([x, y]), ((2, 3), (4, 3))),
        ("reflection", lambda x: nn.pad_reflect(x, 2), (rows,)),
        ("strided slice", lambda x: nn.strided_slice(x, 7, 0, -2), ((8,),)),
        ("windows", lambda x: nn.unfold(x, 3), ((1, 1, 5, 5),)),
        ("pixel shuffle", lambda x: nn.pixel_shuffle(x, 2), ((1, 4, 2, 3),)),
        ("resize", lambda x: nn.resize_bilinear(x, (5, 4)), ((1, 1, 3, 3),)),
    )  # fmt: skip
    for name, make, shapes in makers:
        inputs = tuple(placeholder(shape, name=f"x{n}") for n, shape in enumerate(shapes))
        yield Subject(name, make(*inputs), inputs)


def questions() -> Iterator[Question]:
    """Index expressions and conditions of the kinds that the simplifier has rows for."""
    import eqsatad as ea
    from eqsatad.terms.nodes import Var
    from eqsatad.terms.show import show

    x, y, z = (Var(name, "index") for name in "xyz")
    p, q = (Var(name, "bool") for name in "pq")
    n, low, high, pick = ea.size("n"), ea.minimum, ea.maximum, ea.select
    bounds: Bounds = {x: (0, 7), y: (0, 3), z: (-5, 5)}
    exprs = (
        (x // 5) * 5 + x % 5,
        (x * n + n) // n,
        low(x, y) + high(x, y),
        low(x, z) * high(x, z),
        high(low(x, y), low(x, z)),
        low(high(x, z), high(y, z)),
        low(x, y * 2) // 2,
        high(x, y * 2) // 2,
        low(x, y) - low(x, y + 1),
        low(x, y) - low(x + 1, y),
        low(x, y) - low(x + 1, y + 2),
        low(x + 2, y) - low(x, y + 1),
        high(low(z, 4), y),
        low(high(z, 1), x + 2),
        low(high(x, z), y + 9),
        pick(p, low(x, y), low(x, z)),
        pick(p, high(x, y), high(x, z)),
        pick(p, low(x, z), x),
        pick(p, high(x, z), x),
        pick(p, z * n, x * n),
        pick(z < 0, z * n, 0),
        pick(p, z * 2, z * -3),
        n * pick(p, 1, 0),
        pick(p, pick(q, x, z), z),
        pick(p, x, pick(q, x, z)),
        pick(p, x, 1) + pick(p, 1, y),
        low(pick(p, x, y), pick(p, y, x)),
        high(pick(p, x, y), pick(p, y, x) + 1),
        (z <= x) & (z <= y),
        (z <= x) | (z <= y),
        (x <= z) & (y <= z),
        (x <= z) | (y <= z),
        z <= low(x, y),
        z <= high(x, y),
        x <= pick(p, y, z),
        x.equal(pick(p, y, z)),
        z.equal(low(z, x)),
        z.equal(high(z, x)),
        (x // 3).equal(1),
        (y * 5 <= x) & (x < y * 5 + 5),
        z <= z // 3 * 3,
        (p | q) & (p | (z < 1)),
    )
    for expr in exprs:
        yield Question(show(expr), expr, bounds)
