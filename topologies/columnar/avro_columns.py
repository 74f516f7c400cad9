"""Read Avro records of a declared type as columns of the needed fields.

The row decoder (a schema library, by way of a serde) defines what every record is, as for JSON. The compiled part reads
flat records: numbers, flags, texts, bytes and enums, each alone or in a union with null, by a plan for each schema that
has written records, which resolves it into the schema and the type that records are read as. Records of other schemas,
and damaged ones, are left to the decoder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.state.native import compiled
from penstock.state.serdes.serde import Serde
from penstock.topologies.columnar.json_columns import TEXTS_BYTES_MAX, Projection
from penstock.topologies.columnar.record_shapes import PLAIN_AND_BYTES, FieldReader, Shape, shape_of, why_not_apart
from penstock.topologies.operator_api.columns import BytesColumn
from penstock.topologies.operator_api.required_columns import FieldPath

Schema = Mapping[str, Any]
_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_READ_AS: dict[str, str] = {
    "boolean": "bool",
    "int": "int",
    "long": "int",
    "float": "float",
    "double": "float",
    "bytes": "bytes",
    "string": "str",
    "enum": "str",
}
_PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_INT64_MAX = (1 << 63) - 1


class AvroForm(NamedTuple):
    """How a serde reads and writes Avro: records of ``type`` (``None``: dicts), which are read by the schema ``reader``
    (``None``: as they were written). ``framed``: a zero and a schema's number stand before each record. ``writer`` gives the
    schema of a number, of 0 without frames, and ``None`` for one that is not simply Avro; it raises what the row decoder
    would. ``written`` gives, by the number that stands before it, the schema by which the serde has written a record; no
    function: by more than a schema. Schemas are as fastavro parses them."""

    type: Any
    reader: Schema | None
    framed: bool
    writer: Callable[[int], Schema | None]
    written: Callable[[int], Schema | None] | None = None


class AvroCoder(ABC):
    """Whose methods are the functions of a serde of Avro."""

    @abstractmethod
    def avro_form(self) -> AvroForm | None:
        """How it reads and writes; ``None``: not Avro, or by more than its library."""


def avro_form(serde: Serde[Any]) -> AvroForm | None:
    """How the serde reads and writes Avro; ``None`` if it does not."""
    coder = getattr(serde.deserialize, "__self__", None)
    return coder.avro_form() if isinstance(coder, AvroCoder) else None


def why_not_avro(form: AvroForm, fields: Sequence[FieldPath]) -> str | None:
    """Why records cannot be read into columns of these fields; ``None`` if they can, as far as is known before the first
    record."""
    if form.type is None:
        return "its values have no declared type"
    shape = shape_of(form.type, PLAIN_AND_BYTES, objects=False)
    if isinstance(shape, str):
        return shape
    why = why_not_apart(shape, fields)
    known = form.reader if form.framed else form.writer(0)
    if why is None and known is not None:
        plan = _plan(known, None, shape, [])
        why = plan if isinstance(plan, str) else None
    return why


class AvroProjection(Projection):
    """Reads Avro. ``form`` and ``fields`` must be such that ``why_not_avro`` returns ``None``."""

    def __init__(self, form: AvroForm, fields: Sequence[FieldPath], decode: Callable[[bytes], Any]) -> None:
        shape = shape_of(form.type, PLAIN_AND_BYTES, objects=False)
        assert not isinstance(shape, str), shape
        super().__init__(shape, fields, decode)
        self._form, self._shape = form, shape
        native = compiled()
        if native is None:
            self._projector = None
        else:
            read = {} if form.reader is None else {f["name"]: f for f in form.reader["fields"]}
            specs = [(f.kind, _default(f, read.get(f.key))) for f in self._needed]
            self._projector = native.AvroProjector(specs, form.framed, TEXTS_BYTES_MAX)

    def _projected(self, column: BytesColumn) -> tuple[bytes | None, list[tuple[Any, Any]]] | None:
        if self._projector is None:
            return None
        status, parts, unknown = self._projector.project(*column.raw())
        if unknown and True in list(map(self._learned, unknown)):
            status, parts, _ = self._projector.project(*column.raw())
        return status, parts

    def _learned(self, number: int) -> bool:
        """Whether records of this schema can be read from now on."""
        assert self._projector is not None
        try:
            writer = self._form.writer(number)
        except Exception:  # the decoder meets it again, at the record
            return False
        plan = "not Avro" if writer is None else _plan(writer, self._form.reader, self._shape, self._needed)
        self._projector.add(number, None if isinstance(plan, str) else plan)
        return not isinstance(plan, str)


class _Simple(NamedTuple):
    """A type of a field: a primitive or an enum. ``null_branch``: of the union with null; -1: it is none."""

    kind: str
    null_branch: int
    name: str = ""
    symbols: tuple[str, ...] = ()

    @property
    def nullable(self) -> bool:
        return self.null_branch >= 0 or self.kind == "null"


_Step = tuple[str, int, bool, int, list[bytes | None]]
"""In the format of ``penstock_native.AvroProjector.add``."""


def _plan(writer: Schema, reader: Schema | None, shape: Shape, needed: Sequence[FieldReader]) -> list[_Step] | str:
    """How records of the writer's schema are read, or why they cannot be read by columns."""
    if reader == writer:
        reader = None
    if not _is_record(writer) or not (reader is None or _is_record(reader)):
        return "its schema is not that of a record"
    if reader is not None and _last(reader["name"]) != _last(writer["name"]):
        return "the record has another name"
    of_type = {f.key: f for f in shape.fields}
    places = {f.key: i for i, f in enumerate(needed)}
    read = {f["name"]: f for f in (writer if reader is None else reader)["fields"]}
    if any("aliases" in f for f in read.values()):
        return "a field has aliases"
    if not shape.unknown_allowed and not read.keys() <= of_type.keys():
        return "it has a field that the type forbids"
    steps: list[_Step] = []
    for field in writer["fields"]:
        name = field["name"]
        written = _simple(field["type"])
        if written is None:
            return f"its field {name} is neither a plain value nor one in a union with null"
        if name not in read:
            steps.append(_step(written, written.symbols, nullable=True, needed=-1))
            continue
        step = _resolved(written, _simple(read[name]["type"]), of_type.get(name), places.get(name, -1))
        if isinstance(step, str):
            return f"its field {name} {step}"
        steps.append(step)
    here = {f["name"] for f in writer["fields"]}
    return _why_incomplete(here, read, of_type) or steps


def _resolved(written: _Simple, read: _Simple | None, field: FieldReader | None, needed: int) -> _Step | str:
    """The step for a field that is written like this, read as that, and then put into the type's field."""
    if read is None:
        return "is not read as a plain value"
    if written.kind != "null" and read.kind not in (written.kind, *_PROMOTED.get(written.kind, ())):
        return "is read as another type"
    if written.name != read.name and written.kind == "enum":
        return "is read as another enum"
    nullable = read.nullable and (field is None or field.nullable or field.kind == "any")
    if written.kind == "null":
        return _step(written, (), nullable=nullable, needed=needed) if nullable else "is always null"
    if field is not None and not _fits(_READ_AS[read.kind], field.kind):
        return f"is not of the type's kind, {field.kind}"
    known = [s if s in read.symbols else None for s in written.symbols]
    # the text that bytes are read as must be one, and the bytes that a text is read as were one
    kind = "string" if "string" in (written.kind, read.kind) else written.kind
    return _step(written._replace(kind=kind), known, nullable=nullable, needed=needed)


def _why_incomplete(here: set[str], read: Mapping[str, Any], of_type: Mapping[str, FieldReader]) -> str | None:
    """Why a record with these fields would lack one; ``None`` if all others have defaults."""
    for name, field in read.items():
        if name in here:
            continue
        if "default" not in field:
            return f"its field {name} is not written and has no default"
        if name in of_type and not _takes(of_type[name], field["default"]):
            return f"the default of its field {name} is not of the type"
    missing = next((f.key for f in of_type.values() if f.required and f.key not in read), None)
    return None if missing is None else f"it has no field {missing}"


def _step(written: _Simple, symbols: Sequence[str | None], *, nullable: bool, needed: int) -> _Step:
    return written.kind, written.null_branch, nullable, needed, [None if s is None else s.encode() for s in symbols]


def _default(field: FieldReader, read: Mapping[str, Any] | None) -> Any:
    """The value of records that were written without the field."""
    if read is None:
        return field.default
    default = read.get("default")
    return default if default is not None and _takes(field, default) else None


def _takes(field: FieldReader, default: Any) -> bool:
    """Whether the type's field takes the schema's default as it stands there, where bytes are a text."""
    if field.kind == "any":
        return True
    if default is None:
        return field.nullable
    kind = _READ_AS_IN_JSON.get(type(default))
    if type(default) is int and not -_INT64_MAX - 1 <= default <= _INT64_MAX:
        return False
    return kind is not None and _fits(kind, field.kind)


_READ_AS_IN_JSON: dict[type, str] = {str: "str", bool: "bool", int: "int", float: "float"}


def _fits(kind: str, wanted: str) -> bool:
    """Whether a field of the type's kind takes a value of this one."""
    return wanted in (kind, "any") or (kind == "int" and wanted == "float")


def _is_record(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "record" and "logicalType" not in schema


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def flat_fields(schema: Schema) -> list[tuple[str, str, int, list[bytes | None]]] | None:
    """The fields of a schema: the name, the kind, which branch of its union is null (-1: it is none) and the symbols of an
    enum; ``None`` if it has fields of other types, or is not that of a record."""
    if not _is_record(schema):
        return None
    found: list[tuple[str, str, int, list[bytes | None]]] = []
    for field in schema["fields"]:
        tp = _simple(field["type"])
        if tp is None:
            return None
        found.append((field["name"], tp.kind, tp.null_branch, [s.encode() for s in tp.symbols]))
    return found


def _simple(tp: Any) -> _Simple | None:
    """The type of a field; ``None`` if it is another one."""
    null_branch = -1
    if isinstance(tp, list):
        if len(tp) != 2 or "null" not in tp:
            return None
        null_branch = tp.index("null")
        tp = tp[1 - null_branch]
    kind = tp.get("type") if isinstance(tp, Mapping) else tp
    if isinstance(tp, Mapping):
        if "logicalType" in tp:
            return None
        if kind == "enum":
            return _Simple(kind, null_branch, _last(tp["name"]), tuple(tp["symbols"]))
    if not isinstance(kind, str) or kind not in _PRIMITIVES or (null_branch >= 0 and kind == "null"):
        return None
    return _Simple(kind, null_branch)
