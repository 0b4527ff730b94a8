"""tools/test --gpu: every CUDA program on the real GPU, natively and through Bandsaw in direct mode."""
import collections
import concurrent.futures
import functools
import pathlib
import queue
import re
import time

from lab import cuda_programs, host
from lab.cuda_programs import Program
from lab.guest_run import direct_environment, ensure_direct, native_environment
from lab.results import Results
from lab.shell import Failure, say, step

WORKERS = 8
PROGRAM_SECONDS = 60
LINES = 15


def _compiled(chosen: list[Program], results: Results) -> list[Program]:
    """Those that could be compiled; the others have failed."""
    good = []
    with step(f"compiling {len(chosen)} CUDA programs with nvcc", len(chosen)) as progress:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            for program, done in [(each, pool.submit(progress.counted(each.compile))) for each in chosen]:
                try:
                    done.result()
                    good.append(program)
                except Failure as failure:
                    results.add(f"cuda: {program.name}", "does not compile", str(failure))
    return good


def _timed(program: Program, environment: dict) -> tuple[str, str, float]:
    """What was wrong, the output, the seconds."""
    begin = time.monotonic()
    status, output = program.run(environment, PROGRAM_SECONDS)
    return program.judge(status, output), output, time.monotonic() - begin


def _tail(title: str, text: str) -> str:
    lines = text.strip().splitlines()[-LINES:]
    return "\n".join([f"-- {title}", *(lines or ["(nothing)"])])


def _log_since(log: pathlib.Path, start: int) -> str:
    if not log.exists():
        return ""
    with open(log, "rb") as file:
        file.seek(start)
        return file.read().decode(errors="replace")


@functools.cache
def _known_to_differ() -> re.Pattern:
    lines = (cuda_programs.SOURCES / "answers.differ").read_text().splitlines()
    return re.compile("|".join(f"(?:{line})" for line in lines if line and not line.startswith("#")))


def differing(native: str, ours: str) -> list[str]:
    """Lines that one of the two has alone, "<" the driver's, ">" ours; without those that may differ."""
    counted = [collections.Counter(text.splitlines()) for text in (native, ours)]
    alone = [*(f"< {line}" for line in counted[0] - counted[1]), *(f"> {line}" for line in counted[1] - counted[0])]
    return sorted((line for line in alone if not _known_to_differ().search(line[2:])), key=lambda line: line[2:])


def _one(program: Program, vgpu: str, results: Results) -> tuple[float, float]:
    native_wrong, native_output, native_seconds = "", "it does not run natively", 0.0
    if program.on_native:
        native_wrong, native_output, native_seconds = _timed(program, native_environment())
    log = host.session_log(vgpu)
    start = log.stat().st_size if log.exists() else 0
    wrong, output, seconds = _timed(program, direct_environment(vgpu))
    if program.prints_the_same and not wrong and not native_wrong:
        lines = differing(native_output, output)
        wrong = f"{len(lines)} lines differ from the driver's" if lines else ""
        native_output = output = "\n".join(lines)
    if not wrong:
        say(f"  passed {program.name}: native {native_seconds:.2f} s, Bandsaw {seconds:.2f} s"
            + (f" (natively: {native_wrong})" if native_wrong else ""))
        results.add(program.name, "")
        return native_seconds, seconds
    if native_wrong:
        wrong += f"; fails natively too: {native_wrong}"
    report = [_tail(f"{program.name} on Bandsaw, {seconds:.2f} s", output),
              _tail(f"natively, {native_seconds:.2f} s", native_output),
              _tail("session and runner", _log_since(log, start))]
    results.add(f"cuda: {program.name}", wrong, "\n".join(report), 4 * LINES)
    return native_seconds, seconds


def gpu_programs(results: Results, only: str) -> None:
    """A virtual GPU for each worker, so that its session's log is about one program at a time."""
    chosen = [program for program in cuda_programs.programs() if only in program.name and program.on_gpu]
    chosen = _compiled(chosen, results)
    host.start_vgpud()
    memory = host.vgpuctl_json("status")["device"]["memory"] // (WORKERS + 2)
    free: queue.Queue[str] = queue.Queue()
    names = [f"gpu-test{number}" for number in range(min(WORKERS, len(chosen)))]
    for name in names:
        ensure_direct(name, str(memory), share=100 // (WORKERS + 2))
        free.put(name)

    def work(program: Program) -> tuple[float, float]:
        vgpu = free.get()
        try:
            return _one(program, vgpu, results)
        finally:
            free.put(vgpu)

    with step(f"cuda: {len(chosen)} programs, natively and through Bandsaw", len(chosen)) as progress:
        # Natively such a program takes the GPU's whole memory.
        last = [program for program in chosen if program.is_alone and program.on_native]
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            times = list(pool.map(progress.counted(work), [each for each in chosen if each not in last]))
        times += [progress.counted(work)(program) for program in last]
    say(f"in sum: native {sum(native for native, _ in times):.1f} s, Bandsaw {sum(ours for _, ours in times):.1f} s")
    for name in names:
        host.vgpuctl("destroy", name, "--force", check=False)
