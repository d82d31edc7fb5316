"""Functions: identities of elementary functions, and functions that keep 0 under a guard.

Each row holds wherever its ``before`` side is a finite number; where ``before`` is not, ``after``
may be anything.

Left out on purpose
    ``exp(x + y)`` to ``exp(x) * exp(y)``: it undoes the subtraction of the maximum that keeps a
    softmax in range.
    ``log(x * y)`` to ``log(x) + log(y)``: not a number for two negative factors.
    ``sqrt(x * x)`` to ``x``: wrong for x < 0.
"""

from eqsatad.rules.value_rule import call, equal, g, guard, rewrite, x, y

KEEP_ZERO = ("sin", "tan", "asin", "atan", "sinh", "tanh", "expm1", "log1p", "sqrt", "erf", "abs")

FUNCTIONS = (
    rewrite("exp-times", call("exp", x) * call("exp", y), call("exp", x + y)),
    rewrite("exp-over", call("exp", x) / call("exp", y), call("exp", x - y)),
    equal("exp-inverse", 1 / call("exp", x), call("exp", -x)),
    rewrite("log-exp", call("log", call("exp", x)), x),
    rewrite("exp-log", call("exp", call("log", x)), x),
    rewrite("sqrt-squared", call("sqrt", x) * call("sqrt", x), x),
    rewrite("rsqrt-squared", call("rsqrt", x) * call("rsqrt", x), 1 / x),
    equal("sqrt-inverse", 1 / call("sqrt", x), call("rsqrt", x)),
    rewrite("times-rsqrt", x * call("rsqrt", x), call("sqrt", x)),
    rewrite("sqrt-over", call("sqrt", x) / x, call("rsqrt", x)),
    rewrite("pow-one", call("pow", x, 1), x),
    rewrite("pow-two", call("pow", x, 2), x * x),
    rewrite("pow-three", call("pow", x, 3), x * (x * x)),
    rewrite("pow-half", call("pow", x, 0.5), call("sqrt", x)),
    rewrite("pow-inverse", call("pow", x, -1), 1 / x),
    rewrite("abs-squared", call("abs", x) * call("abs", x), x * x, exact=True),
    rewrite("abs-minus", call("abs", -x), call("abs", x), exact=True),
    rewrite("cos-minus", call("cos", -x), call("cos", x), exact=True),
    *(
        rewrite(f"{name}-minus", call(name, -x), -call(name, x), exact=True)
        for name in ("sin", "tan", "asin", "atan", "sinh", "tanh", "erf")
    ),
    rewrite("max-same", call("max", x, x), x, exact=True),
    rewrite("min-same", call("min", x, x), x, exact=True),
    *(
        rewrite(f"{name}-guarded", call(name, guard(g, x)), guard(g, call(name, x)), exact=True)
        for name in KEEP_ZERO
    ),
)

KEPT = {"exp-over": "one round", "rsqrt-squared": "one round"}
"""Rows that others imply, and why they are here all the same."""
