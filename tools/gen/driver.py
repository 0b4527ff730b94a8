"""Reads calls/driver.toml: what libcuda.so.1 exports."""

import re
import tomllib
from dataclasses import dataclass

import wire

BUILT_WITH = 13000  # the oldest cuda.h that the library is built with


@dataclass
class Function:
    group: str
    symbol: str
    proto: str
    since: int
    suffix: str = ""         # "_ptds", "_ptsz" or none
    suffix_since: int = 0
    by: str = ""
    args: tuple = ()
    row: wire.Row | None = None  # of wire.toml, with by = "wire:NAME"
    why: str = ""                # of a function that is not implemented

    @property
    def implemented(self):
        return bool(self.by)

    @property
    def found(self):
        """Whether cuGetProcAddress finds it."""
        return self.implemented or self.why.startswith("refused: ")

    @property
    def newer(self):
        """Whether cuda.h may not declare it."""
        return max(self.since, self.suffix_since) > BUILT_WITH

    @property
    def base(self):
        """The name that cuGetProcAddress knows."""
        return re.sub(r"_v\d+$", "", self.symbol)

    @property
    def symbols(self):
        return [self.symbol] + ([self.symbol + self.suffix] if self.suffix else [])

    @property
    def parameters(self):
        """[(type, name)] of the prototype."""
        if self.proto in ("", "void"):
            return []
        found = []
        for text in split_top(self.proto):
            match = re.fullmatch(r"(.*?)(\w+)(\[\d*\])?", text.strip())
            if match is None:
                raise wire.RowError(f"driver.toml [{self.group}.{self.symbol}]: '{text.strip()}' is not a parameter")
            found.append((match[1].strip() + ("*" if match[3] else ""), match[2]))
        return found


def split_top(text):
    """Splits at commas outside parentheses."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def parse(group, symbol, table, rows, reasons):
    extra = set(table) - {"proto", "since", "per_thread", "per_thread_since", "by", "args", "why"}
    if extra:
        raise wire.RowError(f"driver.toml [{group}.{symbol}]: unknown keys {sorted(extra)}")
    function = Function(group, symbol, table["proto"], table["since"], table.get("per_thread", ""),
                        table.get("per_thread_since", 0), table.get("by", ""), tuple(table.get("args", ())))
    if bool(table.get("why")) == function.implemented or table.get("why", "") not in ("", *reasons):
        raise wire.RowError(f"driver.toml [{group}.{symbol}]: needs by, or why with one of the reasons")
    function.why = reasons.get(table.get("why", ""), "")
    if function.suffix not in ("", "_ptds", "_ptsz"):
        raise wire.RowError(f"driver.toml [{group}.{symbol}]: per_thread is _ptds or _ptsz")
    if function.by.startswith("wire:"):
        function.row = rows.get(function.by.removeprefix("wire:"))
        names = [name for _, name in function.parameters]
        if not function.row or any(arg not in names for arg in function.args):
            raise wire.RowError(f"driver.toml [{group}.{symbol}]: no such wire call or parameter")
        if len(function.args) != len(function.row.ins) + len(function.row.outs):
            raise wire.RowError(f"driver.toml [{group}.{symbol}]: args must name every input and output")
    elif function.by not in ("", "hand"):
        raise wire.RowError(f"driver.toml [{group}.{symbol}]: by = '{function.by}'?")
    return function


def load(path, wire_spec):
    rows = {row.name: row for row in wire_spec.rows}
    groups = tomllib.loads(path.read_text())
    reasons = groups.pop("reasons", {})
    return [parse(group, symbol, table, rows, reasons) for group, functions in groups.items()
            for symbol, table in functions.items()]
