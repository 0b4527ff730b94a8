"""The machine's own part of the set-up: Debian packages and the CUDA Toolkit."""
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess

from lab import unpack
from lab.paths import cache
from lab.shell import Failure, need_root, run, step

BUILD_PACKAGES = """g++ gcc make meson ninja-build ccache pkg-config git clang-19 libclang-rt-19-dev llvm-19-dev
    libevent-dev libfmt-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev liblz4-dev libzstd-dev
    libcurl4-openssl-dev prometheus-cpp-dev libncurses-dev groff-base libvirt-dev libxml2-dev libxen-dev libslurm-dev
    libgtest-dev libgmock-dev
    libbenchmark-dev zlib1g-dev python3-pip python3-pytest python3-yaml python3-jsonschema""".split()
LAB_PACKAGES = """mmdebstrap cpio zstd kmod busybox-static linux-headers-amd64 util-linux""".split()
WHEELS = ["nvidia-cuda-nvcc", "nvidia-cuda-runtime", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-cccl",
          "nvidia-cuda-profiler-api"]
TOOLKIT_VERSION = "13.0"


def install_packages(packages: list[str]) -> None:
    query = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *packages],
                           capture_output=True, text=True, check=False)
    present = {line.split()[0] for line in query.stdout.splitlines() if line.endswith(" installed")}
    missing = [package for package in packages if package not in present]
    if not missing:
        return
    need_root("installing packages (" + " ".join(missing) + ")")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    names = " ".join(missing[:6]) + (" ..." if len(missing) > 6 else "")
    with step(f"installing {len(missing)} Debian packages: {names}"):
        run(["apt-get", "update", "-qq"], env=environment)
        run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing], env=environment)


# What a build without the software device and libvirt needs: the file by which each is known.
NEEDED = {"/usr/include/event2/event.h": "libevent-dev", "/usr/include/fmt/format.h": "libfmt-dev",
          "/usr/include/spdlog/spdlog.h": "libspdlog-dev", "/usr/include/nlohmann/json.hpp": "nlohmann-json3-dev",
          "/usr/include/CLI/CLI.hpp": "libcli11-dev", "/usr/include/toml++/toml.h": "libtomlplusplus-dev",
          "/usr/include/x86_64-linux-gnu/curl/curl.h": "libcurl4-openssl-dev",
          "/usr/include/prometheus/text_serializer.h": "prometheus-cpp-dev", "/usr/include/curses.h": "libncurses-dev"}
NEEDED_PROGRAMS = {"g++": "g++", "meson": "meson", "ninja": "ninja-build"}
OPTIONAL = {"llvm": "/usr/lib/llvm-19/bin/llvm-config", "libvirt": "/usr/include/libvirt/libvirt.h"}


def missing_packages() -> list[str]:
    """What the least build lacks, by Debian's names, however it may have been installed."""
    files = [package for file, package in NEEDED.items() if not pathlib.Path(file).exists()]
    files += [] if importlib.util.find_spec("pytest") else ["python3-pytest"]  # the tests' own
    return files + [package for program, package in NEEDED_PROGRAMS.items() if shutil.which(program) is None]


def require_least_build() -> None:
    """Installs what the least build needs, from what was carried here if there is no network."""
    if missing_packages():
        unpack.unpack_if_needed()
    if missing := missing_packages():
        try:
            install_packages(missing)
        except Failure as failure:
            raise Failure(f"the build lacks {', '.join(missing)}, and they could not be installed here; tools/pack, "
                          f"run on a machine with a network, packs some of them into .carry\n{failure}") from failure


def least_options() -> tuple[str, ...]:
    """meson options that leave out what this machine has not."""
    absent = [name for name, file in OPTIONAL.items() if not pathlib.Path(file).exists()]
    if "llvm" in absent:
        absent.append("soft")
    return tuple(f"-D{name}=disabled" for name in absent)


TOOLKIT_FILES = ("bin/nvcc", "include/cuda.h", "include/cudaProfiler.h")


def _is_toolkit(path: pathlib.Path) -> bool:
    return all((path / file).exists() for file in TOOLKIT_FILES)


def toolkit() -> pathlib.Path:
    """The CUDA Toolkit: CUDA_HOME, the usual prefix, or a private one from PyPI's wheels."""
    if chosen := os.environ.get("CUDA_HOME"):
        if not _is_toolkit(pathlib.Path(chosen)):
            raise Failure(f"CUDA_HOME is {chosen}, but it has not all of {', '.join(TOOLKIT_FILES)}")
        return pathlib.Path(chosen)
    if _is_toolkit(pathlib.Path("/usr/local/cuda")):
        return pathlib.Path("/usr/local/cuda")
    prefix = cache() / f"toolkit-{TOOLKIT_VERSION}"
    home = prefix / "nvidia" / "cu13"
    if not _is_toolkit(home):
        _install_toolkit(prefix)
    return home


def _install_toolkit(prefix: pathlib.Path) -> None:
    temporary = prefix.with_suffix(".new")
    shutil.rmtree(temporary, ignore_errors=True)
    with step("installing the CUDA compiler, headers and runtime from PyPI (about 105 MB)"):
        # Wheels depend on one another by exact version; --no-deps keeps the libraries nobody needs away.
        run(["/usr/bin/python3", "-m", "pip", "install", "-q", "--no-deps", "--no-cache-dir", "--target", temporary,
             *[f"{wheel}=={TOOLKIT_VERSION}.*" for wheel in WHEELS]])
    home = temporary / "nvidia" / "cu13"
    for program in [*home.glob("bin/*"), *home.glob("nvvm/bin/*")]:
        if program.is_file():
            program.chmod(0o755)
    # nvcc looks for its runtime under lib64.
    if not (home / "lib64").exists():
        (home / "lib64").symlink_to("lib")
    # Wheels bring libraries under their sonames only; linkers look for the plain ones.
    for library in home.glob("lib/*.so.*"):
        plain = library.with_name(library.name.split(".so.")[0] + ".so")
        if not plain.exists():
            plain.symlink_to(library.name)
    shutil.rmtree(prefix, ignore_errors=True)
    temporary.rename(prefix)
    if not _is_toolkit(prefix / "nvidia" / "cu13"):
        raise Failure("the wheels did not bring a complete toolkit; install CUDA 13 and set CUDA_HOME")


def wheels(folder: pathlib.Path, packages: list[str], size: str, alone: bool = False) -> None:
    """Installs packages of PyPI into a folder of their own, whose name says which; nothing, if it is there. `alone`:
    without what they depend on."""
    if folder.exists():
        return
    temporary = folder.with_name(folder.name + ".new")
    shutil.rmtree(temporary, ignore_errors=True)
    with step(f"installing {', '.join(packages)} from PyPI ({size})"):
        run(["/usr/bin/python3", "-m", "pip", "install", "-q", "--no-cache-dir", *(["--no-deps"] if alone else []),
             "--target", temporary, *packages])
    temporary.rename(folder)


NVML_HEADER = "nvidia-nvml-dev==13.0.87"
NEWEST_CUDA_HEADERS = "nvidia-cuda-runtime==13.5.37"


def nvml_include() -> pathlib.Path | None:
    """The folder of nvml.h: the toolkit's, or a private one from PyPI's wheel; None where neither can be had."""
    own = toolkit() / "include"
    return own if (own / "nvml.h").exists() else _wheel_include(NVML_HEADER, "nvml.h")


def newest_cuda_include() -> pathlib.Path | None:
    """The folder of a cuda.h newer than what programs are built with; None where it cannot be had."""
    return _wheel_include(NEWEST_CUDA_HEADERS, "cuda.h")


def _wheel_include(wheel: str, header: str) -> pathlib.Path | None:
    prefix = cache() / wheel.replace("==", "-")
    folder = prefix / "nvidia/cu13/include"
    if not (folder / header).exists():
        temporary = prefix.with_suffix(".new")
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            run(["/usr/bin/python3", "-m", "pip", "install", "-q", "--no-deps", "--no-cache-dir", "--retries", "1",
                 "--timeout", "10", "--target", temporary, wheel], what=f"installing {header}")
        except Failure:
            return None
        shutil.rmtree(prefix, ignore_errors=True)
        temporary.rename(prefix)
    return folder


def debian_mirror() -> str:
    """The archive that this machine's apt already uses."""
    files = [pathlib.Path("/etc/apt/sources.list"), *sorted(pathlib.Path("/etc/apt/sources.list.d").glob("*"))]
    for file in files:
        if not file.is_file():
            continue
        for line in file.read_text(errors="replace").splitlines():
            match = re.match(r"\s*(?:URIs:\s*|deb\s+(?:\[[^]]*\]\s*)?)(\S+?/debian/?)(?:\s|$)", line)
            if match and "security" not in match.group(1):
                return match.group(1)
    raise Failure("apt has no Debian archive set up; the lab takes QEMU from there")


def gpu_count() -> int:
    """NVIDIA's GPUs of this machine, as its driver lists them."""
    if shutil.which("nvidia-smi") is None:
        return 0
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
    return sum(line.startswith("GPU ") for line in listed.splitlines())
