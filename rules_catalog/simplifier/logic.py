"""Connectives: what the normal form, which is flat and sorted, does not do by itself.

``not`` is pushed to the comparisons, complements and equal parts are gone, and a part is
simplified under the others before any row is tried.

Left out on purpose
    ``e & (f | h)`` to ``(e & f) | (e & h)`` is written the other way round, where it is shorter.
"""

from eqsatad.rules.rule import e, f, h, turn

LOGIC = (
    turn("or-common", (e & f) | (e & h), e & (f | h)),
    turn("and-common", (e | f) & (e | h), e | (f & h)),
    turn("or-absorbs", e | (e & f), e),
    turn("and-absorbs", e & (e | f), e),
    turn("or-complement", e | (~e & f), e | f),
    turn("and-complement", e & (~e | f), e & f),
)
