"""tools/gen itself: rows that cannot be are refused by name, structures get their padding."""

import hashlib
import pathlib
import tempfile

import pytest

import driver
import proc_table
import stubs
import wire
from lab.paths import REPO

UAPI = REPO / "guest-driver" / "uapi"


def load_text(text):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "wire.toml"
        path.write_text(text)
        return wire.load(path, UAPI)


class TestRows:
    def refused(self, text, part):
        with pytest.raises(wire.RowError, match=part):
            load_text(text)

    def test_unknown_type(self):
        self.refused('[a]\nmode = "sync"\nin = ["u65 x"]\n', r"\[a\]: unknown type")

    def test_only_handles_are_optional(self):
        self.refused('[a]\nmode = "sync"\nin = ["u32? x"]\n', "unknown type")

    def test_asynchronous_calls_have_no_outputs(self):
        self.refused('[a]\nmode = "async"\nout = ["u32 x"]\n', "no reply")

    def test_bytes_come_last(self):
        self.refused('[a]\nmode = "sync"\nin = ["bytes x", "u32 y"]\n', "comes last")

    def test_unknown_key(self):
        self.refused('[a]\nmode = "sync"\nmood = "good"\n', "unknown keys")

    def test_opcodes_count_from_one(self):
        rows = load_text('[a]\nmode = "sync"\n[b]\nmode = "async"\n').rows
        assert [(row.name, row.opcode) for row in rows] == [("a", 1), ("b", 2)]

    def test_padding_is_written_out(self):
        text = '[a]\nmode = "sync"\nin = ["u32 x", "u64 y", "u32 z", "struct:vgpu_done d", "bytes t"]\n'
        row = load_text(text).rows[0]
        assert [name for _, name in wire.layout(row.ins)] == ["x", "pad0", "y", "z", "pad1", "d", "t_bytes", "pad2"]

    def test_hash_tells_rows_apart_but_not_comments(self):
        first = load_text('[a]\nmode = "sync"\nin = ["u32 x"]\n').hash
        assert first == load_text('# said\n[a]\nmode = "sync"\nin = ["u32 x"] # more\n').hash
        assert first != load_text('[a]\nmode = "sync"\nin = ["i32 x"]\n').hash

    def test_a_call_is_known_by_its_name_and_bytes_whatever_its_opcode(self):
        one, other = '[a]\nmode = "sync"\nin = ["u32 x"]\n', '[b]\nmode = "sync"\nin = ["struct:vgpu_copy c"]\n'
        first, second = load_text(one + other), load_text(other + one)
        assert first.ids == second.ids[::-1]
        assert first.hash != second.hash

    def test_a_structure_is_known_by_its_fields_and_those_inside(self):
        text = '[a]\nmode = "sync"\nin = ["struct:outer o"]\n'
        ids = set()
        for inner in ("__u64 x;", "__u64 x; /* said */", "__u64 y;"):
            with tempfile.TemporaryDirectory() as folder:
                header = pathlib.Path(folder) / "vgpu_wire.h"
                header.write_text(f"struct inner {{ {inner} }};\nstruct outer {{ struct inner i; }};\n")
                rows = pathlib.Path(folder) / "wire.toml"
                rows.write_text(text)
                ids.add(wire.load(rows, header.parent).ids[0])
        assert len(ids) == 2

    def test_what_has_no_ids_stays_as_it_is(self):
        """Releases that differ agree on calls, but not on these: extend them by reserved fields only."""
        text = "".join(wire.without_comments((UAPI / name).read_text())
                       for name in ("vgpu_ring.h", "vgpu_control.h", "vgpu_ioctl.h"))
        digest = hashlib.sha256(text.encode()).hexdigest()
        assert digest[:16] == "94c16938477396f1", "is the new layout one that 0.1 understands?"


class TestPrototypes:
    def test_parameters(self):
        function = driver.Function("g", "cuF_v2", "CUdevice *a, const void *const b[], int c", 1)
        assert function.parameters == [("CUdevice *", "a"), ("const void *const*", "b"), ("int", "c")]
        assert function.base == "cuF"

    def test_void(self):
        assert driver.Function("g", "cuF", "void", 1).parameters == []


class TestNewerFunctions:
    """cuda.h may lack them and their types."""

    def test_one_that_is_missing_needs_no_types(self):
        function = driver.Function("g", "cuF", "CUnewType a", 99990, why="never: no use")
        text = "".join(stubs.generate([function]))
        assert "#if CUDA_VERSION < 99990\nCUresult CUDAAPI cuF()\n#else" in text
        assert "(cuF)" not in "".join(proc_table.generate([function]))

    def test_one_that_is_there_is_declared(self):
        function = driver.Function("g", "cuF", "CUstream s", 99990, "_ptsz", 99990, by="hand")
        assert "CUresult CUDAAPI cuF(CUstream s);" in "".join(stubs.generate([function]))
        assert "CUresult CUDAAPI cuF_ptsz(CUstream s);" in "".join(proc_table.generate([function]))
