"""Generates code from guest-driver/uapi/calls: `python3 tools/gen OUTPUT --out FILE...` (meson runs it), or
`python3 tools/gen coverage` to print which driver functions there are."""

import argparse
import pathlib
import re
import sys

sys.dont_write_bytecode = True  # the source folder stays as it is

import coverage
import cupti
import driver
import errors
import manual
import nvml
import proc_table
import stubs
import version_script
import wire
import wire_calls
import wire_client
import wire_header
import wire_server

ROOT = pathlib.Path(__file__).resolve().parents[2]
CALLS = ROOT / "guest-driver" / "uapi" / "calls"

# name -> (what it needs, function that returns one text per output file)
OUTPUTS = {
    "wire_header": ("wire", wire_header.generate),
    "wire_calls": ("wire", wire_calls.generate),
    "wire_client": ("wire", wire_client.generate),
    "wire_server": ("wire", wire_server.generate),
    "stubs": ("driver", stubs.generate),
    "proc_table": ("driver", proc_table.generate),
    "version_script": ("driver", version_script.generate),
    "errors": ("errors", errors.generate),
    "coverage": ("driver", coverage.generate),
    "nvml_given": ("nvml", nvml.generate_given),
    "nvml_missing": ("nvml", nvml.generate_missing),
    "nvml_map": ("nvml", nvml.generate_map),
    "nvml_coverage": ("nvml", nvml.generate_coverage),
    "cupti_refused": ("cupti", cupti.generate_refused),
    "cupti_maps": ("cupti", cupti.generate_maps),
    "cupti_names": ("headers", cupti.generate_names),
    "manual": ("manual", manual.generate),
}


def load(kind, include):
    if kind == "headers":
        return include
    if kind == "manual":
        return manual.load(CALLS / "environment.toml", ROOT / "guest-driver" / "kernel", _version())
    if kind == "cupti":
        return cupti.load(CALLS / "cupti.toml")
    if kind == "wire":
        return wire.load(CALLS / "wire.toml", ROOT / "guest-driver" / "uapi")
    if kind == "errors":
        return errors.load(CALLS / "errors.toml")
    if kind == "nvml":
        return nvml.load(CALLS / "nvml.toml")
    return driver.load(CALLS / "driver.toml", wire.load(CALLS / "wire.toml", ROOT / "guest-driver" / "uapi"))


def _version():
    found = re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text())
    return found.group(1) if found else ""


def main():
    parser = argparse.ArgumentParser(prog="tools/gen", description=__doc__)
    parser.add_argument("output", choices=OUTPUTS)
    parser.add_argument("--out", nargs="*", default=[], help="files to write; standard output without them")
    parser.add_argument("--include", type=pathlib.Path, help="where the toolkit's headers are, for cupti_names")
    options = parser.parse_args()
    kind, generate = OUTPUTS[options.output]
    try:
        texts = generate(load(kind, options.include))
    except (wire.RowError, OSError) as error:
        sys.exit(f"tools/gen: {error}")
    if not options.out:
        print("\n".join(texts), end="")
        return
    if len(options.out) != len(texts):
        sys.exit(f"tools/gen: {options.output} makes {len(texts)} files, {len(options.out)} named")
    for path, text in zip(options.out, texts):
        pathlib.Path(path).write_text(text)


main()
