"""The column plan: which operators of a sub-topology run on columns, what their sources must decode, and why.

One pass goes backwards over the operators: from what is required of its output, each derives what it requires of its
input (``OperatorSpec.input_mode``), down to the fields of a value. One pass goes forwards, because an operator that
gets lists takes rows (``row_reason``, ``output_layout``). Operators that must run in lockstep take rows, because a
batch of one record is faster as lists.

Columns pay off in large batches, most of all where a record is filtered, projected or passed on; in small batches rows
are as fast.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.topologies.operator_api.operator import OperatorSpec
from penstock.topologies.operator_api.required_columns import (
    ALL_AS_ROWS,
    COLUMN_LAYOUT,
    ROW_LAYOUT,
    EdgeLayout,
    InputMode,
    RequiredColumns,
    path_of,
    union_of,
)
from penstock.topologies.operators.records.source_sink import SourceSpec

ChildEdges = tuple[tuple[tuple[int, int, int], ...], ...]


def input_modes_of(
    names: tuple[str, ...],
    specs: tuple[OperatorSpec, ...],
    children: ChildEdges,
    groups: tuple[tuple[int, ...], ...],
    batch_safe: frozenset[int],
) -> tuple[tuple[InputMode, ...], ...]:
    """The input mode of each operator per in port (a source: of its topic). Indices are a topological order."""
    lockstep = _lockstep(names, children, groups, batch_safe)
    input_modes: list[tuple[InputMode, ...]] = [()] * len(specs)
    for i in reversed(range(len(specs))):
        spec = specs[i]
        out = [
            union_of(input_modes[child][in_port].needs for port, child, in_port in children[i] if port == number)
            for number in range(max(len(spec.out_ports), 1))
        ]
        reason = lockstep.get(i)
        ports = range(max(len(spec.in_ports), 1))
        input_modes[i] = tuple(
            spec.input_mode(p, out) if reason is None else InputMode(ALL_AS_ROWS, reason) for p in ports
        )
    return _as_given(names, specs, children, input_modes, set(lockstep))


def _as_given(
    names: tuple[str, ...],
    specs: tuple[OperatorSpec, ...],
    children: ChildEdges,
    input_modes: list[tuple[InputMode, ...]],
    lockstep: set[int],
) -> tuple[tuple[InputMode, ...], ...]:
    """The input modes, with rows where records arrive as lists."""
    given: list[dict[int, EdgeLayout]] = [{} for _ in specs]
    """Per operator and in port, the layout common to all that feed it."""
    lists_of: dict[tuple[int, int], list[str]] = {}
    out: list[tuple[InputMode, ...]] = []
    for i, spec in enumerate(specs):
        if not spec.in_ports:
            given[i][0] = ROW_LAYOUT if i in lockstep else COLUMN_LAYOUT
        modes: list[InputMode] = []
        for port, input_mode in enumerate(input_modes[i]):
            reason = None if input_mode.rows is not None else spec.row_reason(port, given[i].get(port, ROW_LAYOUT))
            if reason is not None:
                feeding = lists_of.get((i, port))
                input_mode = InputMode(input_mode.needs, f"{reason} from {', '.join(feeding)}" if feeding else reason)
            modes.append(input_mode)
        out.append(tuple(modes))
        taken = next((input_mode for input_mode in modes if input_mode.rows is not None), modes[0])
        whole = COLUMN_LAYOUT
        for port in range(len(modes)):
            whole &= given[i].get(port, ROW_LAYOUT)
        for number, child, in_port in children[i]:
            form = ROW_LAYOUT if i in lockstep else spec.output_layout(number, whole, taken)
            given[child][in_port] = form & given[child].get(in_port, COLUMN_LAYOUT)
            if not (form.keys and form.values and form.fields is None):
                lists_of.setdefault((child, in_port), []).append(names[i])
    return tuple(out)


def _lockstep(
    names: tuple[str, ...], children: ChildEdges, groups: tuple[tuple[int, ...], ...], batch_safe: frozenset[int]
) -> dict[int, str]:
    """The operators of groups that run record by record, and why."""
    out: dict[int, str] = {}
    for members in groups:
        if len(members) == 1:
            continue
        inner = {child for i in members for _, child, _ in children[i]}
        outer = {child for i, some in enumerate(children) if i not in members for _, child, _ in some}
        if any(i not in batch_safe and (i in outer or i not in inner) for i in members):
            for i in members:
                others = ", ".join(names[m] for m in members if m != i)
                out[i] = f"runs record by record with {others}"
    return out


def as_lines(
    names: tuple[str, ...], specs: tuple[OperatorSpec, ...], input_modes: tuple[tuple[InputMode, ...], ...]
) -> Iterator[str]:
    """The plan as text: a line per operator, or per in port if ports differ."""
    for name, spec, of_ports in zip(names, specs, input_modes, strict=True):
        if len({_mode_text(input_mode, spec) for input_mode in of_ports}) == 1:
            yield f"{name} ({spec.kind}): {_mode_text(of_ports[0], spec)}"
            continue
        for port, input_mode in zip(spec.in_ports, of_ports, strict=True):
            yield f"{name}.{port} ({spec.kind}): {_mode_text(input_mode, spec)}"


def _mode_text(input_mode: InputMode, spec: OperatorSpec) -> str:
    parts = ["columns" if input_mode.rows is None else f"rows: {input_mode.rows}"]
    if isinstance(spec, SourceSpec) and input_mode.rows is None:
        parts.append(f"decodes {_decoded(input_mode.needs)}")
    return "; ".join(parts)


def _decoded(needs: RequiredColumns) -> str:
    parts = ["the key"] if needs.key else []
    paths = sorted(map(path_of, needs.fields))
    # an object stands right before its fields, which say that it is read
    parts += [
        f"the field {'.'.join(path)}"
        for path, after in zip(paths, [*paths[1:], ()], strict=False)
        if after[: len(path)] != path
    ]
    if needs.value:
        parts.append("the value" if needs.listed or not needs.fields else "the value of the records that are left")
    return ", ".join(parts) or "nothing"
