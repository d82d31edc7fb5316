"""How a nest is run: which loops go along vector lanes, which are unrolled, and at what cost."""
