"""Resolve the names of a statement."""

from __future__ import annotations

import dataclasses

from sqlglot import exp

from penstock.topologies.expressions.inference import ExpressionScope
from penstock.topologies.expressions.tree import Expression, Field, Input, walk
from penstock.topologies.expressions.types import DataType
from penstock.topologies.sql.parsing import Text

ROWTIME = "rowtime"
KEY = "key"


@dataclasses.dataclass(frozen=True)
class SqlSource:
    """One input of a statement: the path of its row in the record's value, its columns, and its key, which is
    ``None`` if it is not available."""

    base: Expression
    schema: DataType
    key: Expression | None


@dataclasses.dataclass(frozen=True)
class Names:
    """The inputs of a statement by alias; ``scope`` is the type of the records that contain them."""

    text: Text
    sources: dict[str, SqlSource]
    scope: ExpressionScope

    def column(self, node: exp.Column) -> Expression:
        """The expression of a column, which may be ``alias.column``, and a path into structs."""
        parts = [p.name for p in node.parts]
        alias = _found(parts[0], list(self.sources)) if len(parts) > 1 else None
        if alias is None:
            return self._path(self._unqualified(node, parts[0]), parts[1:], node)
        source = self.sources[alias]
        return self._path(self._of_source(node, source, alias, parts[1]), parts[2:], node)

    def _path(self, of: Expression, names: list[str], node: exp.Column) -> Expression:
        for name in names:
            of = Field(of, name)
        return of

    def _of_source(self, node: exp.Column, source: SqlSource, alias: str, name: str) -> Expression:
        known = _found(name, [n for n, _ in source.schema.fields])
        if known is not None:
            return Field(source.base, known)
        if name.lower() == ROWTIME:
            if len(self.sources) > 1:
                raise self.text.error(node, f"a joined row has no {alias}.{ROWTIME}, only {ROWTIME}, its own")
            return Input("timestamp")
        if name.lower() == KEY:
            if source.key is None:
                raise self.text.error(
                    node, f"{alias}.{KEY} is not available after the join; its key is that of the join's condition"
                )
            return source.key
        return Field(source.base, name)

    def _unqualified(self, node: exp.Column, name: str) -> Expression:
        if len(self.sources) == 1:
            alias, source = next(iter(self.sources.items()))
            return self._of_source(node, source, alias, name)
        owners = [(a, s) for a, s in self.sources.items() if _found(name, [n for n, _ in s.schema.fields]) is not None]
        if name.lower() == ROWTIME and not owners:
            return Input("timestamp")
        if len(owners) != 1:
            problem = (
                f"is in {' and '.join(a for a, _ in owners)}" if owners else "is in none that declares its columns"
            )
            raise self.text.error(node, f"{name} {problem}; say which: {'.…, '.join(self.sources)}.…")
        return self._of_source(node, owners[0][1], owners[0][0], name)

    def columns(self, node: exp.Expression, alias: str | None = None) -> dict[str, Expression]:
        """The columns that ``*`` means. Raises if columns are not declared, or two have the same name."""
        found: dict[str, Expression] = {}
        for name, source in self.sources.items():
            if alias is not None and name != alias:
                continue
            if source.schema.kind != "struct":
                raise self.text.error(node, f"the columns of {name} are not declared; name them one by one")
            for column, _ in source.schema.fields:
                if column in found:
                    raise self.text.error(node, f"two columns are named {column}; name them, with AS")
                found[column] = Field(source.base, column)
        return found

    def alias(self, node: exp.Column) -> str | None:
        """The input that a column belongs to; ``None`` if there is none, or more than one."""
        if len(node.parts) > 1:
            alias = _found(node.parts[0].name, list(self.sources))
            if alias is not None:
                return alias
        name = node.parts[0].name
        owners = [a for a, s in self.sources.items() if _found(name, [n for n, _ in s.schema.fields]) is not None]
        return owners[0] if len(owners) == 1 else None


def single(text: Text, alias: str, scope: ExpressionScope) -> Names:
    """The names of a statement with one input."""
    return Names(text, {alias: SqlSource(Input("value"), scope.value, Input("key"))}, scope)


_RECORD = {"timestamp": ROWTIME, "key": KEY}


def columns_alone(text: Text, node: exp.Expression, made: Expression) -> Expression:
    """Return the expression unchanged if only the columns of a row are available. Raises if it reads more of the
    record."""
    for part in walk(made):
        if isinstance(part, Input) and part.which in _RECORD:
            name = _RECORD[part.which]
            raise text.error(
                node,
                f"{name} is not available here, only columns are; make it a column in a subquery: "
                f"FROM (SELECT {name} AS its_{name}, … FROM …) AS …",
            )
    return made


def _found(name: str, known: list[str]) -> str | None:
    """The name itself, or the only name that differs in case alone."""
    if name in known:
        return name
    alike = [k for k in known if k.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None
