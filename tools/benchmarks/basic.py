"""tools/bench: basic figures, side by side with what they are held against, as a table and as JSON."""
import argparse
import contextlib
import json
import pathlib
import subprocess
import sys

from benchmarks.results import columns, exit_status, json_lines, reaches
from lab import host, setup
from lab.cuda_programs import Program
from lab.guest_run import direct_environment, ensure_direct, run_in_guest
from lab.paths import REPO
from lab.shell import Failure, say
from lab.vm import Vm

FIGURES = {
    "calls": "issuing an asynchronous call, round trip of a synchronous one",
    "copies": "copies between host and device against memcpy",
    "soft": "the software device against C++ on the same cores",
    "pocl": "the software device against PoCL, the same kernels in OpenCL C on the same cores",
}
POCL = pathlib.Path("/etc/OpenCL/vendors/pocl.icd")  # Debian's pocl-opencl-icd, with ocl-icd-opencl-dev
NVCC = "-O3 -Xcompiler -O3,-march=native,-fno-math-errno"


class Figure(Program):
    """A program under tools/benchmarks/programs; the host code beside the kernels is what they are compared with."""

    def __init__(self, name: str, headers: tuple[pathlib.Path, ...] = ()):
        super().__init__(REPO / "tools/benchmarks/programs" / f"{name}.cu")
        self.facts.setdefault("nvcc", []).append(NVCC)
        self._headers = headers

    def binary(self) -> pathlib.Path:
        """Programs that include headers of this folder, or those that were named, are built anew with these."""
        return self.binary_of("figure", [*sorted(self.source.parent.glob("*.h")), *self._headers])


def _direct(name: str) -> str:
    program = Figure(name).compile()
    ensure_direct("bench0", "4G")
    done = subprocess.run([program], env=direct_environment("bench0"), capture_output=True, text=True, check=False,
                          timeout=900)
    if done.returncode != 0:
        raise Failure(f"{name} failed: {done.stderr.strip()}")
    return done.stdout


def _vm(vm: Vm, name: str) -> str:
    arguments = ["64"] if name == "copies" else []
    parts: list[bytes] = []
    status = run_in_guest(vm.agent(), Figure(name).compile(), arguments, parts.append, parts.append, timeout=900)
    output = b"".join(parts).decode(errors="replace")
    if status != 0:
        raise Failure(f"{name} failed in the VM: {output[-500:]}")
    return output


def _results(figure: str, where: str, output: str) -> list[dict]:
    return [{"figure": figure, "where": where, **line} for line in json_lines(output)]


def _verdict(result: dict) -> str:
    wanted = result["wanted"]
    if not wanted or result["where"] == "vm":
        return ""
    return f"{wanted} {'yes' if reaches(result['ratio'] or result['value'], wanted) else 'NO'}"


def _table(results: list[dict]) -> None:
    rows = [("figure", "where", "measured", "against", "ratio", "wanted")]
    for result in results:
        against = f"{result['against']:.4g} {result['unit']} ({result['baseline']})" if result["baseline"] else ""
        rows.append((result["name"], result["where"], f"{result['value']:.4g} {result['unit']}", against,
                     f"{result['ratio']:.2f}" if result["ratio"] else "", _verdict(result)))
    print("\n".join(columns(rows)))


def run(arguments: list[str], epilog: str = "") -> int:
    parser = argparse.ArgumentParser(prog="tools/bench", description=__doc__, epilog=epilog)
    parser.add_argument("figure", nargs="*", help=", ".join(f"{name}: {text}" for name, text in FIGURES.items()))
    parser.add_argument("--vm", action="store_true", help="also inside a VM")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of a table")
    options = parser.parse_args(arguments)
    unknown = set(options.figure) - set(FIGURES)
    if unknown:
        parser.error(f"no figure {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    chosen = options.figure or [name for name in FIGURES if name != "pocl" or POCL.exists()]
    if "pocl" in chosen and not POCL.exists():
        raise Failure("pocl: no PoCL on this machine; install pocl-opencl-icd, ocl-icd-opencl-dev and opencl-c-headers")
    with _quiet(options.json):
        setup.prepare(lab=options.vm)
        results = _measure(chosen, options.vm)
    if options.json:
        print(json.dumps({"results": results}, indent=1))
    else:
        _table(results)
    return exit_status([f"{result['name']} is {result['ratio'] or result['value']:.4g}, wanted {result['wanted']}"
                        for result in results if _verdict(result).endswith("NO")])


def _quiet(json_only: bool):
    """With --json, what the steps say goes to stderr, so that stdout is JSON alone."""
    return contextlib.redirect_stdout(sys.stderr) if json_only else contextlib.nullcontext()


def _measure(chosen: list[str], in_vm: bool) -> list[dict]:
    host.start_vgpud()
    results = []
    for name in chosen:
        say(f"{name}: {FIGURES[name]}")
        results += _results(name, "direct", _direct(name))
    host.vgpuctl("destroy", "bench0", check=False)
    if in_vm:
        host.start_libvirt()
        vm = Vm("bench", "bench1", memory_mib=2048)
        vm.up()
        for name in [name for name in chosen if name not in ("soft", "pocl")]:
            say(f"{name} in the VM (emulated: reported only)")
            results += _results(name, "vm", _vm(vm, name))
        vm.remove()
    return results
