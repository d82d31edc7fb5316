"""Connectives: what the normal form, which is flat and sorted, does not do by itself.

``not`` is pushed to the comparisons, complements and equal parts are gone, and a part is
simplified under the others before any row is tried.

Left out on purpose
    ``e & (f | h)`` to ``(e & f) | (e & h)`` is written the other way round, where it is shorter.
"""

from eqsatad.rules.rule import e, f, h, turn

LOGIC = (turn("and-common", (e | f) & (e | h), e | (f & h)),)
