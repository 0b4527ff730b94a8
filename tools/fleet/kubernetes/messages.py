"""Protobuf messages and gRPC services from tables of their names and numbers: no compiler, no generated code, and any
release of Python's protobuf and grpc.

A table has a line for each message, `Name: field=number[:type][*?]`. Without a type a field is a string; `*` is
repeated, `?` optional, `map` a map from strings to strings and `map/Name` one to messages. Services follow as
`service Name: Method(Request) Answer`, `stream` before the answer where it is one."""
import concurrent.futures
import pathlib
import re
import types
from typing import Any, NamedTuple

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {"string": _FIELD.TYPE_STRING, "bool": _FIELD.TYPE_BOOL, "int64": _FIELD.TYPE_INT64,
            "uint64": _FIELD.TYPE_UINT64}


class Method(NamedTuple):
    request: Any
    answer: Any
    streams: bool


class Service(NamedTuple):
    name: str  # on the wire
    methods: dict[str, Method]


def _set_type(field: Any, package: str, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{package}.{kind}"


def _add_map(message: Any, field: Any, package: str, kind: str) -> None:
    entry = message.nested_type.add(name="".join(part.title() for part in field.name.split("_")) + "Entry")
    entry.options.map_entry = True
    for number, (name, of) in enumerate((("key", "string"), ("value", kind)), 1):
        _set_type(entry.field.add(name=name, number=number, label=_FIELD.LABEL_OPTIONAL), package, of)
    field.label, field.type = _FIELD.LABEL_REPEATED, _FIELD.TYPE_MESSAGE
    field.type_name = f".{package}.{message.name}.{entry.name}"


def _add_field(message: Any, package: str, word: str) -> None:
    match = re.fullmatch(r"(\w+)=(\d+)(?::([\w/]+))?([*?]?)", word)
    assert match, word
    name, number, kind, mark = match[1], int(match[2]), match[3] or "string", match[4]
    field = message.field.add(name=name, number=number, label=_FIELD.LABEL_REPEATED if mark == "*"
                              else _FIELD.LABEL_OPTIONAL)
    if kind.startswith("map"):
        _add_map(message, field, package, kind.partition("/")[2] or "string")
    else:
        _set_type(field, package, kind)
    if mark == "?":
        field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name="_" + name)


class Api:
    """Message classes are its attributes; `service(name)` has what a server or a client needs."""

    def __init__(self, package: str, table: str):
        self._package = package
        file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
        services: dict[str, dict[str, re.Match]] = {}
        for line in filter(None, map(str.strip, table.splitlines())):
            head, _, rest = line.partition(":")
            if head.startswith("service "):
                found = re.finditer(r"(\w+)\((\w+)\) (stream )?(\w+)", rest)
                services[head.removeprefix("service ")] = {match[1]: match for match in found}
                continue
            message = file.message_type.add(name=head)
            for word in rest.split():
                _add_field(message, package, word)
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())
        for message in file.message_type:
            setattr(self, message.name, _class_of(pool, f"{package}.{message.name}"))
        self._services = {
            name: Service(f"{package}.{name}", {method: Method(getattr(self, match[2]), getattr(self, match[4]),
                                                               bool(match[3])) for method, match in found.items()})
            for name, found in services.items()}

    def __getattr__(self, name: str) -> Any:  # of messages, for type checkers
        raise AttributeError(f"{self._package} has no message {name}")

    def service(self, name: str) -> Service:
        return self._services[name]


def _class_of(pool: Any, name: str) -> Any:
    descriptor = pool.FindMessageTypeByName(name)
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(pool).GetPrototype(descriptor)


def serve(service: Service, implementation: object, name: str = "") -> Any:
    """What a grpc server adds: calls go to the implementation's methods of the same names. `name`: another one on the
    wire."""
    handlers = {}
    for method, what in service.methods.items():
        make = grpc.unary_stream_rpc_method_handler if what.streams else grpc.unary_unary_rpc_method_handler
        handlers[method] = make(getattr(implementation, method), request_deserializer=what.request.FromString,
                                response_serializer=what.answer.SerializeToString)
    return grpc.method_handlers_generic_handler(name or service.name, handlers)


def listen(path: pathlib.Path, handlers: list[Any], threads: int) -> Any:
    """A grpc server that is started, on a Unix socket; what lay there before is removed."""
    path.unlink(missing_ok=True)
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(threads))
    server.add_generic_rpc_handlers(tuple(handlers))
    if not server.add_insecure_port(f"unix:{path}"):
        raise OSError(f"cannot listen on {path}")
    server.start()
    return server


def client(service: Service, channel: Any) -> Any:
    """An object with a callable for each method."""
    calls = {}
    for method, what in service.methods.items():
        make = channel.unary_stream if what.streams else channel.unary_unary
        calls[method] = make(f"/{service.name}/{method}", request_serializer=what.request.SerializeToString,
                             response_deserializer=what.answer.FromString)
    return types.SimpleNamespace(**calls)
