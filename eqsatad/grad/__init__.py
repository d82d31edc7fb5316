"""Differentiation: the derivatives of the operations, and the reverse sweep over a program."""

from eqsatad.grad.derivatives import derivative
from eqsatad.grad.reverse import Adjoints, reverse

__all__ = ["Adjoints", "derivative", "reverse"]
