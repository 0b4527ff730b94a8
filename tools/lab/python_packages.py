"""Packages for GPUs as PyPI and Debian have them, on a virtual GPU of the software device: their own tests, or what
they compute held against NumPy or a processor."""
import collections
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree

from lab.debian_programs import DebianPackages, entered
from lab.guest_run import direct_environment, ensure_direct, with_cupti, with_ptx_preload, with_ptx_programs
from lab.paths import REPO, cache
from lab.results import Results
from lab.shell import run, say, step

PROGRAMS = REPO / "tests/runtimes/packages"
GOAL = 0.98  # of the tests that need no machine code


@dataclasses.dataclass(frozen=True)
class Package:
    name: str
    wheels: tuple[str, ...]
    tests: tuple[str, ...]  # pytest's arguments
    variables: tuple[tuple[str, str], ...] = ()
    # What asks for machine code, or for what the machine lacks: why, by a pattern of the test's name and its error.
    not_counted: tuple[tuple[str, str], ...] = ()
    # Where the package's tests are only in its sources: the distribution that has them, the installed package, whose
    # version is taken, the folder of tests there, and which files of it.
    sources: tuple[str, str, str] = ("", "", "")
    own_tests: tuple[str, ...] = ()
    asks_cupti: bool = False
    debian: DebianPackages | None = None  # where these have it, and no wheels
    seconds: int = 5400  # on two cores, which other work may have too


PYTEST = ("pytest", "pytest-timeout", "pytest-xdist")
DEBIAN_PYTEST = ("python3-pytest", "python3-pytest-timeout", "python3-pytest-xdist")
CUPY_TESTS = ("test_array_function", "test_carray", "test_core", "test_dlpack", "test_elementwise", "test_flags",
              "test_function", "test_internal", "test_iter", "test_nep50_examples", "test_ndarray",
              "test_ndarray_byteswap", "test_ndarray_complex_ops", "test_ndarray_contiguity",
              "test_ndarray_conversion", "test_ndarray_copy_and_view", "test_ndarray_cuda_array_interface",
              "test_ndarray_get", "test_ndarray_indexing", "test_ndarray_math", "test_ndarray_owndata",
              "test_ndarray_scatter", "test_ndarray_ufunc", "test_ndarray_unary_op", "test_reduction", "test_scan",
              "test_syncdetect", "test_userkernel")
PYCUDA_TESTS = ("test_cumath", "test_driver", "test_gpuarray")
PACKAGES = [
    Package("numba", ("numba-cuda[cu13]", "cffi", "filecheck", "ml-dtypes", "psutil", *PYTEST),
            ("-p", "numba_plugin", "-o", "consider_namespace_packages=true", "--import-mode=importlib",
             "--ignore-glob=*benchmarks*", "--pyargs", "numba.cuda.tests"),
            (("NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS", "0"),),
            ((r"test_kernel_launch", "a benchmark"), (r"sass", "reads machine code"),
             (r"test_set_registers", "counts the registers of machine code"),
             (r"has no attribute 'reserved'", "asks cuda-bindings for what its newest version does not have"))),
    # Triton keeps what it compiles by the text of the kernel and the version of ptxas.
    Package("triton", ("triton", "numpy", *PYTEST), (str(PROGRAMS / "triton_work.py"),),
            (("TRITON_DEFAULT_FP_FUSION", "1"),)),
    Package("pycuda", ("pycuda", "numpy", "mako", *PYTEST), (str(PROGRAMS / "pycuda_work.py"),),
            sources=("pycuda", "pycuda", "test"), own_tests=PYCUDA_TESTS),
    # CUB's kernels, hundreds in one image, are left to a real GPU: CuPy's own do the same.
    Package("cupy", ("cupy-cuda13x[ctk]", "ml-dtypes", *PYTEST), ("-W", "ignore", str(PROGRAMS / "cupy_work.py")),
            (("CUPY_ACCELERATORS", ""),),
            ((r"CURANDError|CUSOLVERError|CUBLASError", "asks a library of machine code"),
             (r"multi_?gpu|multi_device|invalid device ordinal", "needs two GPUs"),
             (r"test_size_huge|32BitBoundary", "needs more memory than the virtual GPU has")),
            ("cupy", "cupy-cuda13x", "tests"), tuple(f"cupy_tests/core_tests/{name}" for name in CUPY_TESTS)),
    Package("drjit", ("drjit", "numpy", *PYTEST), (str(PROGRAMS / "dr_jit_work.py"),)),
    Package("halide", ("halide", "numpy", *PYTEST), (str(PROGRAMS / "halide_work.py"),)),
    Package("iree", ("iree-base-compiler", "iree-base-runtime", "numpy", *PYTEST), (str(PROGRAMS / "iree_work.py"),)),
    # Both load NVRTC themselves.
    Package("tinygrad", ("tinygrad", "numpy", *PYTEST), (str(PROGRAMS / "tinygrad_work.py"),), (("DEV", "CUDA"),)),
    # Matrix products are kernels of its own: cuBLAS is machine code. It chooses among many, and compiles all for that.
    Package("jax", ("jax[cuda13]", "numpy", *PYTEST), (str(PROGRAMS / "jax_work.py"),),
            (("XLA_PYTHON_CLIENT_PREALLOCATE", "false"), ("JAX_PLATFORMS", "cuda"),
             ("XLA_FLAGS", "--xla_gpu_triton_gemm_any=true --xla_gpu_cublas_fallback=false "
                           "--xla_gpu_autotune_level=0")), asks_cupti=True),
    Package("catboost", ("catboost", *PYTEST), (str(PROGRAMS / "catboost_work.py"),)),
    Package("mujoco", ("mujoco-warp", *PYTEST), (str(PROGRAMS / "mujoco_work.py"),), (("MUJOCO_GL", "disable"),)),
    Package("openmm", ("openmm[cuda12]", "numpy", *PYTEST), (str(PROGRAMS / "openmm_work.py"),)),
    Package("slangpy", ("slangpy", "numpy", *PYTEST), (str(PROGRAMS / "slangpy_work.py"),)),
    # PyPI's wheels have machine code alone; Debian's has PTX of all kernels but those of NVIDIA's libraries.
    Package("pytorch", (), (str(PROGRAMS / "pytorch_operators.py"),),
            not_counted=((r"CUBLAS|CUSPARSE|CUFFT|CUSOLVER|CUDNN|cuDNN|torch_cuda_linalg",
                          "asks a library of machine code"),
                         (r"to be on cpu|NotImplementedError", "not there for CUDA"),
                         (r"operator\[(new_)?empty|multinomial|bernoulli", "what is not set, or set by chance"),
                         (r"native_batch_norm.*shape", "what a GPU keeps of it has another shape")),
            debian=DebianPackages("trixie", ("python3-torch-cuda", "python3-setuptools", "python3-scipy",
                                             *DEBIAN_PYTEST), "about 5 GB", ("nvidia-cudnn-cu12==9.1.0.70",)),
            seconds=10800),
    Package("llama", (), (str(PROGRAMS / "llama_operators.py"),),
            debian=DebianPackages("sid", ("llama.cpp-tests", "libggml0-backend-cuda", *DEBIAN_PYTEST),
                                  "about 2 GB")),
]


def interpreter(package: Package) -> pathlib.Path:
    """Of a virtual environment with the package, in the cache."""
    place = cache() / "packages" / package.name
    python, complete, wheels = place / "bin/python", place / "complete", " ".join(package.wheels)
    if not complete.exists() or complete.read_text() != wheels:
        with step(f"installing {wheels} from PyPI"):
            run(["/usr/bin/env", "python3", "-m", "venv", place])
            run([python, "-m", "pip", "install", "-q", "--no-cache-dir", *package.wheels])
        complete.write_text(wheels)
    return python


def own_tests(package: Package) -> list[str]:
    """The files among the package's sources, which are fetched once."""
    distribution, installed, folder_of_tests = package.sources
    if not distribution:
        return []
    python = interpreter(package)
    version = run([python, "-c", f"import importlib.metadata as m; print(m.version('{installed}'))"]).strip()
    place = cache() / "packages" / f"{distribution}-{version}-tests"
    if not place.exists():
        with step(f"fetching the tests of {distribution} {version} from PyPI"), tempfile.TemporaryDirectory() as folder:
            # pip reads a source package's metadata by its build system, for which this one needs no CUDA.
            run([python, "-m", "pip", "install", "-q", "setuptools>=77", "cython"])
            stub = {**os.environ, "CUPY_INSTALL_USE_STUB": "1"}
            run([python, "-m", "pip", "download", "-q", "-d", folder, "--no-deps", "--no-build-isolation",
                 "--no-binary", distribution, f"{distribution}=={version}"], env=stub)
            [archive] = pathlib.Path(folder).glob("*.tar.gz")
            run(["tar", "-xzf", archive, "-C", folder])
            shutil.move(archive.with_suffix("").with_suffix("") / folder_of_tests, place)
    return [str(place / f"{name}.py") for name in package.own_tests]


def pytest_command(package: Package, arguments: list[str]) -> list[str]:
    command = ["-m", "pytest", *arguments, *package.tests, *own_tests(package)]
    return entered(package.debian, ["python3", *command]) if package.debian else [str(interpreter(package)), *command]


def _reason(case: xml.etree.ElementTree.Element) -> str:
    """Why a test failed, short and without what differs between tests; empty if it did not."""
    bad = [part for kind in ("failure", "error") for part in case.findall(kind)]
    if not bad:
        return ""
    text = (bad[0].get("message") or "failed").replace("\n", " ")
    return re.sub(r"0x[0-9a-f]+|\d+", "N", text)[:110]


def report(package: Package, path: pathlib.Path) -> tuple[float, list[str]]:
    """The share of the counted tests that passed, and lines about all of them."""
    counts: collections.Counter = collections.Counter()
    reasons: dict[str, list[str]] = {}
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
        reason = _reason(case)
        excused = next((why for pattern, why in package.not_counted if re.search(pattern, f"{name}: {reason}")), "")
        if reason and excused:
            counts[f"not counted: {excused}"] += 1
        elif reason:
            counts["failed"] += 1
            reasons.setdefault(reason, []).append(name)
        else:
            counts["skipped" if case.find("skipped") is not None else "passed"] += 1
    share = counts["passed"] / max(1, counts["passed"] + counts["failed"])
    lines = [f"{package.name:<8}{counts['passed']:>6} passed{counts['failed']:>6} failed{counts['skipped']:>6} skipped"
             f"{share:>9.2%}"]
    lines += [f"  {count:>4}  {what}" for what, count in sorted(counts.items()) if what.startswith("not counted")]
    for reason, names in sorted(reasons.items(), key=lambda item: -len(item[1])):
        lines.append(f"  {len(names):>4}  {reason}: {', '.join(sorted(names)[:3])}")
    return share, lines


def package_tests(results: Results, only: str) -> None:
    """Those whose name has `only`; each takes minutes."""
    for package in PACKAGES:
        if only not in package.name:
            continue
        variables = with_ptx_programs(with_ptx_preload({**direct_environment("packages0"), **dict(package.variables)}))
        variables["PYTHONPATH"] = str(PROGRAMS)
        if package.asks_cupti:
            variables = with_cupti(variables)
        path, log = (cache() / "packages" / f"{package.name}-report{end}" for end in (".xml", ".log"))
        path.unlink(missing_ok=True)
        # Their markers are none of tests/pytest.ini.
        command = pytest_command(package, ["-o", "addopts=", "-v", "-n", str(os.cpu_count()), "--timeout=300",
                                           "--timeout-method=thread", "--durations=50", "-p", "no:cacheprovider", "-p",
                                           "sticky_worker", f"--junitxml={path}"])
        ensure_direct("packages0", "4G")
        with tempfile.TemporaryDirectory() as folder, step(f"runtimes: {package.name}'s tests (each in {log})"), \
                open(log, "wb") as output:
            done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False, cwd=folder,
                                  env=variables, timeout=package.seconds)
            if not path.exists():
                results.add(f"runtimes: {package.name}", f"exit status {done.returncode}",
                            log.read_text(errors="replace"))
                continue
            share, lines = report(package, path)
        for line in lines:
            say(f"  {line}")
        wrong = "" if share >= GOAL else f"{share:.2%}, {GOAL:.0%} are wanted"
        if any("collection failure" in line for line in lines):
            wrong = f"files of tests could not be read: {log}"  # each counts as one failure, whatever was in it
        results.add(f"runtimes: {package.name}", wrong)
