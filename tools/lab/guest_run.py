"""tools/guest-run: runs a CUDA program on a virtual GPU, in a VM or, with --direct, as a process of this host."""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

from lab import host, setup, timing
from lab.agent import Agent
from lab.image import GUEST_LIBRARIES
from lab.paths import BUILD, CUPTI, PTX_PRELOAD, REPO, cache, environment
from lab.plain_vm import lab_vm
from lab.shell import Failure, main

# Part of the guest's own root, or the driver that the guest has its own copy of.
GUEST_HAS = re.compile(r"^(linux-vdso|ld-linux|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|cuda))(\.so|-|\b)")


def libraries(program: pathlib.Path) -> list[pathlib.Path]:
    """The shared libraries that a program needs and the guest lacks."""
    text = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    found = []
    for line in text.splitlines():
        match = re.match(r"\s*(\S+) => (\S+)", line)
        if not match or GUEST_HAS.match(match.group(1)):
            continue
        if match.group(2) == "not":
            raise Failure(f"{program} needs {match.group(1)}, which is not found on this host (set LD_LIBRARY_PATH)")
        found.append(pathlib.Path(match.group(2)))
    return found


def resolve(program: str) -> pathlib.Path:
    path = shutil.which(program)
    if path is None:
        raise Failure(f"{program} is not a program (no such file, or not executable)")
    return pathlib.Path(path).resolve()


def run_in_guest(agent: Agent, program: pathlib.Path, arguments: list[str], output, error, stdin: int | None = None,
                 timeout: float | None = None, variables: dict | None = None) -> int:
    """Puts the program and its libraries into the guest (once) and runs it there."""
    place = f"/opt/run/{program.name}"
    agent.put(program, place, 0o755)
    for library in libraries(program):
        target = f"{GUEST_LIBRARIES}/{library.name}"
        if agent.shell(f"test -s {target}")[0] != 0:
            agent.put(library, target, 0o755)
    return agent.run([place, *arguments], {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
                                           **(variables or {})}, output, error, stdin, timeout)


def direct_environment(vgpu: str, run: pathlib.Path | None = None) -> dict[str, str]:
    """What makes an ordinary process use our libcuda.so.1 and libnvidia-ml.so.1 on a virtual GPU of the vgpud that has
    this folder."""
    folders = [str(BUILD / "guest-driver/libcuda"), str(BUILD / "guest-driver/nvml")]
    folders += filter(None, [os.environ.get("LD_LIBRARY_PATH")])
    return {**environment(run), "BANDSAW_VGPU": vgpu, "LD_LIBRARY_PATH": ":".join(folders)}


# Packages keep what they compile by architecture alone, and would find there what was compiled for a real GPU.
PTX_CACHES = {"CUPY_CACHE_DIR": ".cupy/ptx_cache", "PYCUDA_CACHE_DIR": ".cache/pycuda_ptx"}
# Compilers that are part of a program give machine code where they are newer than the driver says it is.
NEWEST_TOOLKIT = "13.5"
PTX_PROGRAMS = REPO / "guest-driver/ptx_preload/bin"  # nvcc and ptxas


def _preloaded(variables: dict[str, str], library: str) -> dict[str, str]:
    others = variables.get("LD_PRELOAD")
    return {**variables, "LD_PRELOAD": f"{library}:{others}" if others else library}


def with_cupti(variables: dict[str, str], folder: str = str(CUPTI.parent)) -> dict[str, str]:
    """Variables of a program whose profiler asks CUPTI (guest-driver/cupti)."""
    return _preloaded(variables, f"{folder}/{CUPTI.name}") if CUPTI.exists() else variables


def with_ptx_preload(variables: dict[str, str], library: str = str(PTX_PRELOAD),
                     home: str = str(pathlib.Path.home())) -> dict[str, str]:
    """Variables of a program on the software device: what compiles at run time gives PTX (guest-driver/ptx_preload)."""
    caches = {name: f"{home}/{place}" for name, place in PTX_CACHES.items()}
    return {"BANDSAW_DRIVER_VERSION": NEWEST_TOOLKIT, **caches, **_preloaded(variables, library)}


def with_ptx_programs(variables: dict[str, str]) -> dict[str, str]:
    """The same for a program of this host that starts nvcc, or Triton's ptxas (it has one for newer GPUs too)."""
    for place in PTX_CACHES.values():  # PyCUDA makes none that it is told of
        (pathlib.Path.home() / place).mkdir(parents=True, exist_ok=True)
    folders = variables.get("PATH", os.environ.get("PATH", "")).split(":")
    path = ":".join(folder for folder in folders if folder != str(_ptx_place() / "bin"))  # of an outer run
    ptxas = str(PTX_PROGRAMS / "ptxas")
    nvcc = shutil.which("nvcc", path=path)
    toolkit = _ptx_toolkit(pathlib.Path(nvcc).resolve().parents[1] if nvcc else None)
    return {"TRITON_PTXAS_PATH": ptxas, "TRITON_PTXAS_BLACKWELL_PATH": ptxas,
            "CUDA_ROOT": str(toolkit), **variables, "PATH": f"{toolkit / 'bin'}:{path}"}


def _ptx_place() -> pathlib.Path:
    return cache() / "ptx-toolkit"


def _ptx_toolkit(real: pathlib.Path | None) -> pathlib.Path:
    """A toolkit's folder whose nvcc and ptxas give PTX: PyCUDA looks there for libraries, JAX for ptxas. Programs that
    go from nvcc to its toolkit, links resolved, come here: these two are files."""
    place = _ptx_place()
    (place / "bin").mkdir(parents=True, exist_ok=True)
    ours = {place / "bin" / program.name: program for program in PTX_PROGRAMS.iterdir()}
    links: dict[pathlib.Path, pathlib.Path] = {}
    if real:
        links = {place / entry.relative_to(real): entry for entry in [*real.iterdir(), *(real / "bin").iterdir()]}
    for link in links.keys() - ours.keys() - {place / "bin"}:
        if not link.is_symlink() or link.readlink() != links[link]:
            _replace(link, lambda fresh, target=links[link]: fresh.symlink_to(target))
    for program, source in ours.items():
        if program.is_symlink() or not program.exists() or program.read_bytes() != source.read_bytes():
            _replace(program, lambda fresh, source=source: shutil.copy(source, fresh))
    return place


def _replace(place: pathlib.Path, make) -> None:
    """Others may use it meanwhile."""
    fresh = place.with_name(f".{place.name}.{os.getpid()}")
    make(fresh)
    fresh.replace(place)


def native_environment() -> dict[str, str]:
    """What an ordinary process has: the driver of this machine, if it has one."""
    return dict(os.environ)


# What a program takes of a GPU's memory share before it asks for any: its context, its code.
CONTEXT_MIB = 544


def memory_for(programs: int, mib: int) -> str:
    """A share in which so many programs at once have `mib` MiB for themselves, on whatever device the lab has."""
    on_gpu = os.environ.get("BANDSAW_LAB_DEVICE", "soft") != "soft"
    return f"{mib + (programs * CONTEXT_MIB if on_gpu else 0)}M"


def ensure_direct(vgpu: str, memory: str = "2G", share: int = 40) -> None:
    host.start_vgpud()
    host.ensure_vgpu(vgpu, memory, share, share)


def run() -> int:
    parser = argparse.ArgumentParser(prog="tools/guest-run", description=__doc__)
    parser.add_argument("--direct", action="store_true", help="no VM: a process of this host, on a virtual GPU")
    parser.add_argument("--gpu", action="store_true", help="the device is this machine's NVIDIA GPU")
    parser.add_argument("--timing", action="store_true",
                        help="with --direct: afterwards, how long its kernels would take on a model of a GPU, by what "
                             "the software device has recorded of them")
    parser.add_argument("--model", choices=timing.MODELS, default=timing.MODELS[0], help="that GPU")
    parser.add_argument("--vm-memory", type=int, default=1024, metavar="MIB", help="memory of a VM that is not yet up")
    parser.add_argument("--stop", action="store_true", help="shut the reused VM down (after PROGRAM, if one is given)")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE",
                        help="set in the program's environment")
    parser.add_argument("program", nargs="?", metavar="PROGRAM")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS")
    options = parser.parse_args()
    if not options.program and not options.stop:
        parser.error("PROGRAM is missing")
    if options.timing and (options.gpu or not options.direct or not options.program):
        parser.error("--timing goes with --direct and a PROGRAM, not with --gpu: the software device records kernels")
    if wrong := [item for item in options.env if not item.partition("=")[0] or "=" not in item]:
        parser.error(f"--env {wrong[0]}: what is set is written NAME=VALUE, as --env {wrong[0].strip('=') or 'NAME'}=1")
    variables = dict(item.split("=", 1) for item in options.env)
    program = resolve(options.program) if options.program else None
    # What this tool has to say goes to stderr: stdout belongs to the program.
    saved = os.dup(1)
    os.dup2(2, 1)
    if options.gpu:
        host.use_device("cuda")
        setup.prepare_gpu(lab=not options.direct)
    else:
        setup.prepare(lab=not options.direct)
    if options.direct:
        vgpu = timing.NAME if options.timing else "direct0"
        if not options.timing:
            ensure_direct(vgpu)
        os.dup2(saved, 1)
        variables = {**direct_environment(vgpu), **variables}
        variables = with_cupti(variables if options.gpu else with_ptx_programs(with_ptx_preload(variables)))
        if options.timing and program:
            status, table = timing.run_timed(program, options.arguments, variables, options.model)
            print(table, end="", file=sys.stderr)
            return status
        os.execvpe(str(program), [options.program, *options.arguments], variables)
    if not options.gpu:
        variables = with_ptx_preload(variables, f"{GUEST_LIBRARIES}/{PTX_PRELOAD.name}", "/root")
    variables = with_cupti(variables, GUEST_LIBRARIES)
    return _in_vm(options, program, variables, saved)


def _in_vm(options, program: pathlib.Path | None, variables: dict, saved: int) -> int:
    host.start_vgpud()
    host.start_libvirt()
    name = ("guest-run-gpu", "gpu-guest0") if options.gpu else ("guest-run", "guest0")
    vm = lab_vm(*name, options.vm_memory)
    status = 0
    if program:
        vm.up("8G" if options.gpu else "512M")
        sys.stdout.flush()
        status = run_in_guest(vm.agent(), program, options.arguments, lambda data: os.write(saved, data),
                              lambda data: os.write(2, data), stdin=0, variables=variables)
        vm.disconnect()
    if options.stop:
        vm.remove()
    return status


if __name__ == "__main__":
    main(run)
