"""Rows of the simplifier: how minima, selects and conditions may be written otherwise.

They are tried one after the other on normal forms, where maxima are negated minima and every
comparison is against 0, and what gets shorter is kept. Gradients do not use them.
"""
