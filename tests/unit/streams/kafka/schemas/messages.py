"""A class of Protobuf messages, made without ``protoc``."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


def order_message() -> type[Any]:
    """``shop.Order`` with ``id`` (int64), ``note`` (string) and ``counts`` (a map of strings to int64)."""
    file = descriptor_pb2.FileDescriptorProto(name="penstock_tests/order.proto", package="shop", syntax="proto3")
    kind = descriptor_pb2.FieldDescriptorProto
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=kind.TYPE_INT64, label=kind.LABEL_OPTIONAL)
    order.field.add(name="note", number=2, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
    order.field.add(
        name="counts", number=3, type=kind.TYPE_MESSAGE, label=kind.LABEL_REPEATED, type_name=".shop.Order.CountsEntry"
    )
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=kind.TYPE_INT64, label=kind.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
