"""Errors of running expressions."""

from __future__ import annotations

from penstock.state.errors import ProcessingError, UserError


class ExpressionError(ProcessingError):
    """An expression failed on a row: division by zero, int64 overflow, a value of another type than was declared.

    The operator's error policy decides what happens to the record. The message has the expression's text and the row's
    values.
    """


class ResultError(UserError):
    """The result of an aggregate does not fit its type: no record alone is to blame, so no policy skips one, and the task
    stops. The message has the expression's text and the result."""


class Fault(Exception):
    """An error inside a running expression. ``ExpressionError`` adds the expression and the row."""
