"""Tracing: a plain Python function as an expression, where both provably do the same.

The function stays what defines a step. Its expression, if there is one, only lets a batch be computed by columns, and
every row for which the two could differ is a row on which the expression fails: such a batch is computed by the function.
Nothing of the user's is called in order to trace it. ``source`` finds the function's text and proves that it is the
function's, ``tracer`` reads it, ``meanings`` has the value of each part, ``operations`` and ``calls`` translate,
``names`` watches the names that it reads, and ``traced_function`` is what takes the function's place in an operator.

What is the same, and why; all else is refused:

* *int*: Python's have no end. Where a sum, difference, product or negation leaves int64, the expression fails. ``//`` and
  ``%`` round down in both. ``/`` of two ints is Python's only where both are exact as floats, so the expression fails
  beyond ±2**53, and so does a comparison of such an int with a float, which Python compares by value.
* *float*: ``+ - *`` and ``/`` are those of IEEE 754 in both, on the same operands in the same order; an int operand is
  rounded to a float in the same way. NaN equals nothing and is true. ``//`` and ``%`` are refused, since they have no
  columns. Which NaN a result is, of those that Python shows as ``nan``, is not promised.
* *zero*: where Python raises ``ZeroDivisionError`` the expression fails, of floats too.
* *null*: an operator of ``None`` raises in Python and is null in an expression, so each operand that may be null is made
  to fail where it is. ``==`` and ``in`` do not raise, and are false. ``is None`` and ``== None`` are tests for null. A
  field of a record that is null raises in Python; the expression fails there.
* *truth*: of an int and a float ``!= 0``, of text and bytes ``!= ""``, of null false; ``and``, ``or`` and ``not`` are
  choices between values, as in Python.
* *bool* is not a number here: arithmetic and comparisons with numbers are refused, and so is any comparison of values of
  different kinds, except for int with float.
* *choices*: both values must be of one kind, since an expression would make a float of an int. What only one side
  computes can only fail where that side is taken. Chained comparisons stop where a comparison is false.
* *texts* are compared by code points in both, and their methods are Python's own.
* *results*: a Struct, a dataclass with a generated ``__init__``, or a dict is built by the same call from the same values,
  if each has the declared type. A step's result must be what its serde writes.
* *names*: a global, a variable of an enclosing function and a default value may be rebound at any time, and a name that
  a loop binds means its last value. So each name that is read is compared before each batch, and a batch that finds another
  value is computed by the function. Not seen is a function whose ``__code__`` is replaced after the topology was built, or
  a class of records whose attributes are.
* *records* are as they were read. Not seen is a change that one branch makes in a record of another: functions must make
  none.
* *types*: fields of type Decimal, datetime, list, of several types or of none are refused. Before each batch the columns
  are compared with the declared types, since a function before may have given something else.
"""
