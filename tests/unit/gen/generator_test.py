"""tools/gen itself: rows that cannot be are refused by name, structures get their padding."""

import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools" / "gen"))

import driver
import wire

UAPI = ROOT / "guest-driver" / "uapi"


def load_text(text):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "wire.toml"
        path.write_text(text)
        return wire.load(path, UAPI)


class Rows(unittest.TestCase):
    def refused(self, text, part):
        with self.assertRaisesRegex(wire.RowError, part):
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
        self.assertEqual([(row.name, row.opcode) for row in rows], [("a", 1), ("b", 2)])

    def test_padding_is_written_out(self):
        row = load_text('[a]\nmode = "sync"\nin = ["u32 x", "u64 y", "u32 z", "struct:vgpu_done d", "bytes t"]\n').rows[0]
        self.assertEqual([name for _, name in wire.layout(row.ins)],
                         ["x", "pad0", "y", "z", "pad1", "d", "t_bytes", "pad2"])

    def test_hash_tells_rows_apart_but_not_comments(self):
        first = load_text('[a]\nmode = "sync"\nin = ["u32 x"]\n').hash
        self.assertEqual(first, load_text('# said\n[a]\nmode = "sync"\nin = ["u32 x"] # more\n').hash)
        self.assertNotEqual(first, load_text('[a]\nmode = "sync"\nin = ["i32 x"]\n').hash)


class Prototypes(unittest.TestCase):
    def test_parameters(self):
        function = driver.Function("g", "cuF_v2", "CUdevice *a, const void *const b[], int c", 1)
        self.assertEqual(function.parameters, [("CUdevice *", "a"), ("const void *const*", "b"), ("int", "c")])
        self.assertEqual(function.base, "cuF")

    def test_void(self):
        self.assertEqual(driver.Function("g", "cuF", "void", 1).parameters, [])


unittest.main(verbosity=1)
