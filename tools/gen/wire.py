"""Reads calls/wire.toml into rows; every generator of the wire works on these."""

import hashlib
import re
import tomllib
from dataclasses import dataclass, field

KINDS = ["context", "module", "library", "kernel", "function", "stream", "event", "graph", "node", "exec", "pool",
         "array", "mipmap", "texture", "surface", "memory", "linker"]
SCALARS = {
    "u32": ("uint32_t", 4), "i32": ("int32_t", 4), "f32": ("float", 4),
    "u64": ("uint64_t", 8), "dptr": ("uint64_t", 8), "hva": ("uint64_t", 8),
}
MODES = {"sync": ("kSync"), "async": ("kAsync")}
ORDERS = ["all", "none", "stream", "stream_done", "event_done", "event_end", "graph"]


class RowError(Exception):
    """A row that cannot be; the message names it."""


@dataclass
class Argument:
    type: str          # as written, without "?"
    name: str
    optional: bool = False

    @property
    def is_handle(self):
        return self.type in KINDS

    @property
    def is_struct(self):
        return self.type.startswith("struct:")

    @property
    def is_tail(self):
        return self.type in ("bytes", "str")

    @property
    def struct(self):
        return self.type.removeprefix("struct:")

    @property
    def c_type(self):
        """Type of the field that carries it."""
        if self.is_struct:
            return self.struct
        if self.is_tail:
            return "uint32_t"
        return "uint64_t" if self.is_handle else SCALARS[self.type][0]

    @property
    def size(self):
        """Bytes of the field; structures count as 0: their size is a multiple of 8, which the header asserts."""
        if self.is_struct:
            return 0
        if self.is_tail:
            return 4
        return 8 if self.is_handle else SCALARS[self.type][1]

    @property
    def field(self):
        return self.name + "_bytes" if self.is_tail else self.name


@dataclass
class Row:
    name: str
    opcode: int
    mode: str
    reply: str = "now"
    run: str = "inline"
    engine: str = ""        # a name from vgpu-sched/engine.h, which the compiler checks; empty: no GPU work
    context: bool = False
    order: str = "all"
    stream: str = ""        # where the stream is, if it is no argument of its own: STRUCTURE.FIELD
    event: str = ""
    synchronises: bool = False
    survives_poison: bool = False
    ins: list = field(default_factory=list)
    outs: list = field(default_factory=list)

    @property
    def camel(self):
        return "".join(part.capitalize() for part in self.name.split("_"))

    @property
    def sync(self):
        return self.mode == "sync"

    def named(self, *types):
        return [argument.name for argument in self.ins if argument.type in types]

    @property
    def stream_path(self):
        """Where the stream in whose order it is stands in the arguments."""
        if self.order not in ("stream", "stream_done", "graph"):
            return None
        return self.stream or next(iter(self.named("stream")), None)

    @property
    def event_paths(self):
        return self.named("event") if self.event or self.order in ("event_done", "event_end") else []

    @property
    def done_path(self):
        return next(iter(self.named("struct:vgpu_done")), None)

    def tail(self, arguments):
        return arguments[-1] if arguments and arguments[-1].is_tail else None

    @property
    def in_tail(self):
        return self.tail(self.ins)

    @property
    def out_tail(self):
        return self.tail(self.outs)


@dataclass
class Wire:
    rows: list
    hash: bytes
    ids: list           # by row: what a call is, whatever its opcode


def parse_argument(row, text):
    match = re.fullmatch(r"((?:struct:)?[a-z0-9_]+)(\??) ([a-z][a-z0-9_]*)", text)
    if not match:
        raise RowError(f"wire.toml [{row}]: cannot read argument '{text}'")
    argument = Argument(match[1], match[3], match[2] == "?")
    known = argument.is_handle or argument.is_struct or argument.is_tail or argument.type in SCALARS
    if not known or (argument.optional and not argument.is_handle):
        raise RowError(f"wire.toml [{row}]: unknown type in '{text}'")
    return argument


def check_order(row):
    if row.order in ("stream", "stream_done", "graph") and row.stream_path is None:
        raise RowError(f"wire.toml [{row.name}]: no argument is the stream in whose order it is")
    structures = [argument.name for argument in row.ins if argument.is_struct]
    if row.stream and (row.stream_path is None or row.stream.partition(".")[0] not in structures):
        raise RowError(f"wire.toml [{row.name}]: no structure has its stream '{row.stream}'")
    wants_events = row.event or row.order in ("event_done", "event_end")
    if wants_events and len(row.event_paths) not in (1, 2):
        raise RowError(f"wire.toml [{row.name}]: one or two arguments are to be events")


def parse_row(name, opcode, table):
    known = {"mode", "reply", "run", "engine", "context", "order", "stream", "event", "synchronises",
             "survives_poison", "in", "out"}
    extra = set(table) - known
    if extra:
        raise RowError(f"wire.toml [{name}]: unknown keys {sorted(extra)}")
    row = Row(name, opcode, table.get("mode", ""), table.get("reply", "now"), table.get("run", "inline"),
              table.get("engine", ""), table.get("context", False), table.get("order", "all"), table.get("stream", ""),
              table.get("event", ""), table.get("synchronises", False), table.get("survives_poison", False),
              [parse_argument(name, text) for text in table.get("in", [])],
              [parse_argument(name, text) for text in table.get("out", [])])
    for value, allowed in ((row.mode, ("sync", "async")), (row.reply, ("now", "later")),
                           (row.run, ("inline", "worker")), (row.order, ORDERS),
                           (row.event, ("", "records", "waits"))):
        if value not in allowed:
            raise RowError(f"wire.toml [{name}]: '{value}' is none of {allowed}")
    if row.mode == "async" and (row.outs or row.reply == "later"):
        raise RowError(f"wire.toml [{name}]: an asynchronous call has no reply")
    check_order(row)
    for arguments in (row.ins, row.outs):
        names = [argument.name for argument in arguments]
        if len(set(names)) != len(names) or any(argument.is_tail for argument in arguments[:-1]):
            raise RowError(f"wire.toml [{name}]: names must differ, and bytes or str comes last")
    return row


def layout(arguments):
    """Fields of a structure whose size is a multiple of 8: [(c_type, name)], padding written out."""
    fields, offset, pads = [], 0, 0
    for argument in arguments:
        wide = argument.is_struct or argument.size == 8
        if wide and offset % 8:
            fields.append(("uint32_t", f"pad{pads}"))
            offset, pads = offset + 4, pads + 1
        fields.append((argument.c_type, argument.field))
        offset += argument.size
    if offset % 8:
        fields.append(("uint32_t", f"pad{pads}"))
    return fields


def without_comments(text):
    return " ".join(re.sub(r"/\*.*?\*/", " ", text, flags=re.S).split())


def structures_of(header):
    """name -> text of each structure, with those of the structures inside it; comments and blanks do not count."""
    texts = dict(re.findall(r"struct (\w+) \{(.*?)\};", without_comments(header), flags=re.S))

    def whole(name):
        return texts[name] + "".join(whole(inner) for inner in re.findall(r"struct (\w+)", texts[name]))
    return {name: whole(name) for name in texts}


def meaning_of(argument, structures):
    """What both sides must agree on: handles are told apart by their kind's number, structures by their fields."""
    if argument.is_struct:
        if argument.struct not in structures:
            raise RowError(f"wire.toml: vgpu_wire.h has no structure {argument.struct}")
        return structures[argument.struct]
    number = KINDS.index(argument.type) if argument.is_handle else ""
    return f"{argument.type}{number}{'?' * argument.optional}"


def call_id(row, structures):
    """64 bits by which a library and a host of different releases know a call: its name and the bytes that travel. A
    call whose bytes change is another call."""
    arguments = [[(argument.name, meaning_of(argument, structures)) for argument in side]
                 for side in (row.ins, row.outs)]
    digest = hashlib.sha256(repr((row.name, row.mode, row.context, arguments)).encode()).digest()
    return int.from_bytes(digest[:8], "little")


def schema_hash(ids):
    """Over all calls in the order of their opcodes: with the same hash, opcodes mean the same."""
    return hashlib.sha256(repr(ids).encode()).digest()[:24]


def load(path, uapi):
    tables = tomllib.loads(path.read_text())
    rows = [parse_row(name, opcode, table) for opcode, (name, table) in enumerate(tables.items(), 1)]
    structures = structures_of((uapi / "vgpu_wire.h").read_text())
    ids = [call_id(row, structures) for row in rows]
    if len(set(ids)) != len(ids):
        raise RowError("wire.toml: two calls have the same id; rename one")
    return Wire(rows, schema_hash(ids), ids)
