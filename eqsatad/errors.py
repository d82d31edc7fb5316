"""Every exception of eqsatad: what it means, an example, and what to do about it.

All derive from `EqsatadError` and from the closest builtin, so ``except ValueError`` works too.
"""


class EqsatadError(Exception):
    """Anything that eqsatad raises on purpose."""


class TermError(EqsatadError, ValueError):
    """A term that cannot be built. The message shows the term and marks the part."""


class ArityError(TermError):
    """An operation got the wrong number of operands. Give as many as the message says."""


class DtypeError(TermError, TypeError):
    """Operands or arrays of dtypes that do not go together. Cast one of them with `cast`."""


class IndexCountError(TermError):
    """A tensor was read with too few or too many indices. Give one per dimension."""


class UnboundIndexError(TermError):
    """An index is used but bound by no output axis and no reduction, or bound twice.

    Example: ``y[i] = x[i, k]`` without a sum over ``k``. Reduce over it or use a bound one.
    """


class ShapeError(TermError):
    """Shapes that do not agree: a head, an override's result, operands of a library function."""


class OutOfBoundsError(TermError, IndexError):
    """A read that can leave its tensor. Guard it with `select` or use ``get(..., outside=)``."""


class IndexRangeError(TermError, OverflowError):
    """An index expression that may not fit 64 bits. Reduce the sizes or the coefficients."""


class DivisorError(TermError, ZeroDivisionError):
    """An index is divided by something that is not a positive constant or size."""


class SyntaxTermError(TermError, SyntaxError):
    """Text that is not index notation. The message marks the place."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        # What `SyntaxError` prints.
        self.msg = message


class StoreError(EqsatadError, ValueError):
    """Stored terms that are damaged or of another format. Store them again."""


class NotDifferentiableError(EqsatadError, ValueError):
    """A gradient that does not exist: through argmax, or through integers to floats.

    Ask with ``allow_zero=True`` to take it as zero.
    """


class RuleError(EqsatadError, ValueError):
    """A rule that is malformed or wrong. The message shows the row, and the counterexample."""


class RefutedRuleError(RuleError):
    """A rule that a counterexample shows to be wrong. State the condition that it lacks."""


class ScheduleError(EqsatadError, ValueError):
    """A loop nest cannot be changed like this. The message shows it and lists its loops."""


class ExplanationError(EqsatadError, RuntimeError):
    """A step of an explanation that does not replay or changes values: a mistake in eqsatad."""


class BackendError(EqsatadError, RuntimeError):
    """A kernel could not be compiled or loaded. The message of the compiler is chained."""


class UnknownTargetError(EqsatadError, ValueError):
    """``target=`` names no backend. The message lists those that exist."""


class MissingExtraError(EqsatadError, ImportError):
    """An optional package is absent. Install the extra that the message names."""


class ArgumentError(EqsatadError, TypeError):
    """A kernel was called with arrays that do not fit: number, name, shape or dtype."""


class CacheWarning(UserWarning):
    """The cache directory cannot be used or an entry was damaged; work goes on without it."""
