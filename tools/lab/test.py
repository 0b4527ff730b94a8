"""tools/test: sets the machine up and runs every test; the last line counts them."""
import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import threading

from lab import (
    build,
    cuda_programs,
    fuzz,
    gpu_tests,
    host,
    lint,
    machine,
    python_packages,
    python_tests,
    runtimes,
    setup,
)
from lab.guest_run import direct_environment, ensure_direct
from lab.paths import BUILD, REPO
from lab.results import Results
from lab.shell import Failure, main, run, step

FUZZ_SECONDS = 5
PROGRAM_SECONDS = 180
UNIT_SECONDS = 900  # of one program, in what processor time others leave


def _pytest(command: list[str], options: dict, results: Results, name: str) -> None:
    """Runs one file of Python tests and counts them."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.xml"
        done = subprocess.run([*command, f"--junitxml={report}"], capture_output=True, text=True, errors="replace",
                              check=False, timeout=UNIT_SECONDS, **options)
        output = done.stdout + done.stderr
        if not python_tests.count_report(results, name, report, output) or done.returncode not in (0, 1):
            results.add(name, f"exit status {done.returncode}", output)


def _gtest(command: list[str], options: dict, results: Results, name: str) -> None:
    """Runs one GoogleTest program and counts its cases."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        try:
            done = subprocess.run([*command, f"--gtest_output=json:{report.name}"], capture_output=True, text=True,
                                  errors="replace", check=False, timeout=UNIT_SECONDS, **options)
            status, output = done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired as expired:
            status, output = -1, f"ran longer than {UNIT_SECONDS} s\n{(expired.stdout or b'').decode(errors='replace')}"
        text = pathlib.Path(report.name).read_text()
    if not text:
        results.add(name, f"exit status {status}" if status else "", output)
        return
    suites = json.loads(text).get("testsuites", [])
    cases = [case for suite in suites for case in suite["testsuite"]]
    bad = [case for case in cases if case.get("failures")]
    skipped = sum(case.get("result") == "SKIPPED" for case in cases)
    results.count(len(cases) - skipped - len(bad), skipped)
    if status != 0 and not bad:
        results.add(name, f"exit status {status}", output)
    for case in bad:
        full_name = f"{case['classname']}.{case['name']}"
        results.add(f"{name} {full_name}", case["failures"][0]["failure"], _of_case(full_name, output))


def _of_case(case: str, output: str) -> str:
    """What GoogleTest printed while this case ran."""
    return output.partition(f"[ RUN      ] {case}\n")[2].partition(f"[  FAILED  ] {case}")[0]


def unit_tests(results: Results, only: str) -> None:
    tests = json.loads(run(["meson", "introspect", "--tests", BUILD]))
    _run_tests(results, [test for test in tests if only in test["name"]], BUILD, "unit")


def _run_tests(results: Results, tests: list[dict], folder: pathlib.Path, label: str) -> None:
    def one(test: dict) -> None:
        _test_program(test, folder, results, f"{label}: {test['name']}")

    with step(f"{label}: {len(tests)} test programs", len(tests)) as progress:
        # One more than there are processors: those that start a vgpud wait much.
        with concurrent.futures.ThreadPoolExecutor((os.cpu_count() or 1) + 1) as pool:
            list(pool.map(progress.counted(one), tests))


def _test_program(test: dict, folder: pathlib.Path, results: Results, name: str) -> None:
    kind = _pytest if "pytest" in test["cmd"] else _gtest
    kind(test["cmd"], {"cwd": folder, "env": {**os.environ, **test["env"]}}, results, name)


# What runs under which sanitizer: LLVM's code is not instrumented, so the compiler stays out; threads are the subject
# of few tests.
ASAN_TESTS = ["image", "runner", "virtio", "vfio_user", "wire_server"]
# ThreadSanitizer keeps its shadow where the window lies: tests that reserve the window cannot run under it.
TSAN_TESTS = ["cuda-waiting", "cuda-time-slices"]
LEFT_OUT = ("-Dllvm=disabled", "-Dlibvirt=disabled")


def instrumented() -> pathlib.Path:
    """The build of what guests feed: one for the tests under AddressSanitizer and for the fuzz targets."""
    folder = REPO / "build" / "instrumented"
    build.configure(folder, (*LEFT_OUT, *fuzz.SANITIZED), fuzz.CLANG)
    return folder


def tsan_tests(results: Results) -> None:
    folder = REPO / "build" / "tsan"
    # Not -Werror: GCC warns of the standard library's own code when it is instrumented.
    build.configure(folder, (*LEFT_OUT, "-Db_lundef=false", "-Ddebug=false", "-Db_sanitize=thread", "-Dwerror=false",
                             "-Doptimization=0"))
    tests = _chosen(folder, TSAN_TESTS)
    build.ninja(folder, *_programs(tests, folder), text=f"building {len(tests)} test programs for tsan")
    _run_tests(results, tests, folder, "tsan")


def _chosen(folder: pathlib.Path, wanted: list[str]) -> list[dict]:
    return [test for test in json.loads(run(["meson", "introspect", "--tests", folder])) if test["name"] in wanted]


def _programs(tests: list[dict], folder: pathlib.Path) -> list[str]:
    return [os.path.relpath(test["cmd"][0], folder) for test in tests]


def direct_programs(results: Results, only: str) -> None:
    """Every CUDA program as a process of this host, through our libcuda.so.1."""
    chosen = [program for program in cuda_programs.programs() if only in program.name and program.on_soft]
    cuda_programs.compile_all(chosen)
    long = [program for program in chosen if program.is_long]
    groups = {"direct0": [program for program in chosen if program not in long], "long0": long}
    for vgpu in groups:
        ensure_direct(vgpu)

    def one(program, vgpu: str) -> None:
        status, output = program.run(direct_environment(vgpu), PROGRAM_SECONDS)
        results.add(f"cuda: {program.name}", program.judge(status, output), output)

    with step(f"cuda: {len(chosen)} programs in direct mode", len(chosen)) as progress:
        def all_of(vgpu: str) -> None:
            for program in groups[vgpu]:
                progress.counted(one)(program, vgpu)

        with concurrent.futures.ThreadPoolExecutor(len(groups)) as pool:
            list(pool.map(all_of, groups))
    host.vgpuctl("destroy", "long0")


def build_instrumented(kinds: list[str]) -> tuple[pathlib.Path, list[dict]]:
    """The instrumented build of what these kinds need, and its tests."""
    folder = instrumented()
    tests = _chosen(folder, ASAN_TESTS) if "asan" in kinds else []
    targets = [*([fuzz.SHORT] if "fuzz" in kinds else []), *_programs(tests, folder)]
    build.ninja(folder, *targets, text="building what runs under sanitizers")
    return folder, tests


def beside_others(results: Results, kinds: list[str], options, processors_free: threading.Event) -> None:
    """What needs nothing that other tests need: unit tests, sanitizers, Xen, kernels in grid slices. Where an input, or
    a kernel, has a time limit, it waits until processors are free."""
    if "unit" in kinds:
        unit_tests(results, options.name)
    sanitized = {"asan", "fuzz"} & set(kinds)
    folder, tests = build_instrumented(kinds) if sanitized else (BUILD, [])
    if "xen" in kinds:
        python_tests.run_folder_apart(results, "xen", options.name, options.full)
    processors_free.wait()
    if tests:
        _run_tests(results, tests, folder, "asan")
    if "fuzz" in kinds:
        fuzz_targets(results, folder, 120 if options.full else FUZZ_SECONDS)
    if "slices" in kinds:
        python_tests.run_folder_apart(results, "slices", options.name, options.full)


@contextlib.contextmanager
def in_idle_time(work):
    """Does `work` on a thread with what processor time the body leaves; it is over when the body is left."""
    def with_lowest_priority():
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)  # of this thread and of what it starts
        work()

    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        done = thread.submit(with_lowest_priority)
        yield
    done.result()


def fuzz_targets(results: Results, folder: pathlib.Path, seconds: int) -> None:
    targets = fuzz.targets(folder)
    with step(f"fuzz: {len(targets)} targets, {seconds} s each", len(targets)) as progress:
        def one(target: pathlib.Path) -> None:
            outcome = fuzz.run_target(target, folder / "corpus", seconds)
            results.add(f"fuzz: {target.name}", outcome.wrong, outcome.output)

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(progress.counted(one), targets))


KINDS = ["lint", "unit", "asan", "tsan", "fuzz", "cuda", "runtimes", "direct", "slices", "vm", "xen", "slurm",
         "kubernetes", "metrics", "package"]
LONG_KINDS = ["tsan", "slurm", "kubernetes", "metrics", "package"]  # with --full or --only
GPU_KINDS = ["cuda", "direct", "slices", "gpu"]


def run_on_gpu(options) -> int:
    """The same programs and faults on the real GPU, and what only it can show."""
    kinds = options.only or GPU_KINDS
    if wrong := [kind for kind in kinds if kind not in GPU_KINDS]:
        raise Failure(f"--gpu has {', '.join(GPU_KINDS)}, not {', '.join(wrong)}")
    results = Results()
    host.use_device("cuda")
    setup.prepare_gpu(lab="gpu" in kinds)
    if "cuda" in kinds:
        gpu_tests.gpu_programs(results, options.name)
    for kind in ("direct", "slices", "gpu"):
        if kind in kinds:
            python_tests.run_folder(results, kind, options.name, options.full)
    host.stop_vgpud()
    return results.summary()


def run_tests() -> int:
    parser = argparse.ArgumentParser(prog="tools/test", description=__doc__)
    parser.add_argument("--full", action="store_true", help="also every CUDA program in the VM, and longer fuzzing")
    parser.add_argument("--only", choices=[*KINDS, "gpu"], action="append",
                        help="one kind of tests; may be given again")
    parser.add_argument("--name", default="", help="tests whose name contains this")
    parser.add_argument("--gpu", action="store_true",
                        help="the device is this machine's NVIDIA GPU: " + ", ".join(GPU_KINDS))
    options = parser.parse_args()
    if options.gpu:
        return run_on_gpu(options)
    kinds = options.only or [kind for kind in KINDS if options.full or kind not in LONG_KINDS]
    results = Results()
    if "lint" in kinds:
        lint.check_all(results, options.name)
    if "package" in kinds:
        machine.install_packages(["python3-pytest"])
        python_tests.run_folder(results, "package", options.name, options.full, python_tests.SECONDS_TO_PACKAGE)
    if not set(kinds) - {"lint", "package"}:
        return results.summary()
    setup.prepare(lab="vm" in kinds or "xen" in kinds, tests="unit" in kinds or "vm" in kinds, xen="xen" in kinds)
    if {"cuda", "runtimes", "direct", "vm"} & set(kinds):
        host.destroy_unused()
    if "cuda" in kinds:
        direct_programs(results, options.name)
    if "runtimes" in kinds:
        runtimes.runtime_tests(results, options.name, short=not (options.full or options.only))
        if (options.only and options.name) or options.full:
            python_packages.package_tests(results, options.name)
    # Direct tests and those in VMs wait much, and a guest has one emulated processor.
    direct_ended = threading.Event()
    with in_idle_time(lambda: beside_others(results, kinds, options, direct_ended)):
        try:
            if "direct" in kinds:
                python_tests.run_folder(results, "direct", options.name, options.full)
        finally:
            direct_ended.set()
        if "vm" in kinds:
            python_tests.run_folder(results, "vm", options.name, options.full)
    host.stop_vgpud()
    for kind in ("slurm", "kubernetes", "metrics"):
        if kind in kinds:
            python_tests.run_folder(results, kind, options.name, options.full)
    if "tsan" in kinds:
        tsan_tests(results)
    return results.summary()


if __name__ == "__main__":
    main(run_tests)
