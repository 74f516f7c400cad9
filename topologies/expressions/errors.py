"""What goes wrong while an expression is run."""

from __future__ import annotations

from penstock.state.errors import ProcessingError


class ExpressionError(ProcessingError):
    """An expression failed on a row: division by zero, int64 overflow, a value of another type than was declared.

    The operator's error policy decides what becomes of the record. The message has the expression's text and what the
    row held.
    """


class Fault(Exception):
    """Inside a running expression: what went wrong. ``ExpressionError`` puts the expression and the row around it."""
