"""vgpu_calls.h, which the guest's kernel includes, says in C what wire.h says in C++: opcodes, ids and every field."""

import re
import subprocess

import pytest

import wire
import wire_calls
import wire_header
from lab.paths import REPO

UAPI = REPO / "guest-driver" / "uapi"


@pytest.fixture(scope="module")
def spec():
    return wire.load(UAPI / "calls" / "wire.toml", UAPI)


def structures(spec):
    """Name in C, name in C++ and fields of each fixed part."""
    for row in spec.rows:
        for kind, suffix, arguments in (("call", "Args", row.ins), ("reply", "Reply", row.outs)):
            if arguments:
                yield f"vgpu_{kind}_{row.name}", row.camel + suffix, [field for _, field in wire.layout(arguments)]


def compiled(folder, name, text):
    source, program = folder / name, folder / (name + ".program")
    source.write_text(text)
    compiler = ["g++", "-std=c++20", "-Wno-invalid-offsetof"] if name.endswith(".cc") else ["gcc", "-std=gnu11"]
    subprocess.run([*compiler, "-Wall", "-Werror", f"-I{REPO}", f"-I{UAPI}", "-o", program,
                    source], check=True)
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout


def printing(head, items):
    lines = "\n".join(f'  printf("{label} %llu\\n", (unsigned long long)({value}));' for label, value in items)
    return f"{head}\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {{\n{lines}\n  return 0;\n}}\n"


def test_the_bytes_are_those_of_the_host(spec, tmp_path):
    (tmp_path / "vgpu_calls.h").write_text("".join(wire_calls.generate(spec)))
    (tmp_path / "wire.h").write_text("".join(wire_header.generate(spec)))
    in_c, in_cc = [], []
    for c_name, cc_name, fields in structures(spec):
        in_c.append((c_name, f"sizeof(struct {c_name})"))
        in_cc.append((c_name, f"sizeof({cc_name})"))
        in_c += [(f"{c_name}.{field}", f"offsetof(struct {c_name}, {field})") for field in fields]
        in_cc += [(f"{c_name}.{field}", f"offsetof({cc_name}, {field})") for field in fields]
    for row in spec.rows:
        in_c += [(row.name, f"VGPU_CALL_{row.name.upper()}"), (row.name, f"ids[VGPU_CALL_{row.name.upper()}]")]
        in_cc += [(row.name, f"(uint32_t)Opcode::k{row.camel}"),
                  (row.name, f"kIdOfCall[(uint32_t)Opcode::k{row.camel}]")]
    for i in range(24):
        in_c.append(("hash", f"hash[{i}]"))
        in_cc.append(("hash", f"kSchema.hash[{i}]"))
    for part in ("major", "minor", "patch"):
        in_c.append((part, f"VGPU_RELEASE_{part.upper()}"))
        in_cc.append((part, f"kSchema.{part}"))
    tables = ("static const unsigned long long ids[VGPU_CALLS] = VGPU_CALL_IDS;\n"
              "static const unsigned char hash[] = VGPU_SCHEMA_HASH;")
    ours = compiled(tmp_path, "ours.c", printing(f'#include "{tmp_path}/vgpu_calls.h"\n{tables}', in_c))
    theirs = compiled(tmp_path, "theirs.cc",
                      printing(f'#include "{tmp_path}/wire.h"\nusing namespace bandsaw::wire;', in_cc))
    assert len(ours.splitlines()) > 500
    assert ours == theirs


def test_the_module_repeats_no_opcode():
    """Numbers of calls stand in the generated header only."""
    for file in sorted((REPO / "guest-driver/kernel").glob("*.[ch]")):
        assert not re.search(r"define\s+VGPU_CALL_|\.opcode = \d", file.read_text()), file
