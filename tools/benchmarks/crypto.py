"""tools/bench crypto: AES-XTS on a virtual GPU as the guest's kernel has it done, against the processor.

After Gdev's figures 8 and 9: sectors of 4 KiB, in batches, read (decrypted) and written (encrypted). In direct form a
program does what vgpu_crypto.ko does, with its kernels, beside one core with tables, as the paper's was, and with AES
instructions. With --vm the kernel of a guest does it: an encrypted block device in memory, by each cipher. An emulated
guest's processor is slow and the software device is not emulated, so there ratios say little; results are checked in
both."""
import argparse
import contextlib
import json
import pathlib
import re
import sys

from benchmarks import charts
from benchmarks.basic import Figure
from benchmarks.results import columns, exit_status, json_lines
from lab import encrypted, host, setup
from lab.daemon import Daemon, only_one
from lab.paths import REPO
from lab.shell import Failure, say
from lab.started import Started
from lab.vm import Vm

NAME = "crypto"
SIZES_KIB = (64, 256, 1024)
SECONDS = 600
SOURCES = tuple(REPO / "guest-driver/kernel" / name for name in ("aes_xts.cu", "crypto_batch.h"))
CIPHERS = {"virtual GPU": "xts-aes-vgpu", "tables": "xts(ecb(aes-generic))", "AES instructions": "xts-aes-aesni"}


def direct(device: str, mib: int, rounds: int, sizes: list[int]) -> list[dict]:
    """A line for each direction and size of batch, in MB/s, and how many times as fast as the core each is."""
    daemon = Daemon(device, "none" if device == "soft" else "band+", name=NAME)
    try:
        daemon.create(NAME, 50, memory="4096M" if device != "soft" else "256M")
        say(f"AES-XTS of {mib} MiB in batches of {', '.join(f'{size} KiB' for size in sizes)}")
        process = Started(Figure("encrypt", SOURCES).compile(), mib, rounds, *sizes,
                          variables=daemon.program_environment(NAME))
        status, said = process.finish(SECONDS)
    finally:
        daemon.end()
    lines = json_lines(said)
    if status != 0 and (not lines or all(line["right"] for line in lines)):
        raise Failure(f"encrypt ended with {status}: {said[-2000:]}")
    return [{**line, "times": line["gpu"] / line["tables"], "times_instructions": line["gpu"] / line["instructions"]}
            for line in lines]


def table(rows: list[dict]) -> str:
    lines: list[tuple] = [("direction", "KiB", "virtual GPU MB/s", "tables MB/s", "times", "AES instructions MB/s",
                           "times", "right")]
    for row in rows:
        lines.append((row["direction"], row["batch"] >> 10, f"{row['gpu']:.1f}", f"{row['tables']:.1f}",
                      f"{row['times']:.2f}", f"{row['instructions']:.1f}", f"{row['times_instructions']:.2f}",
                      "yes" if row["right"] else "NO"))
    return "\n".join(columns(lines))


def drawn(rows: list[dict], device: str) -> dict[str, charts.Chart]:
    made: dict[str, charts.Chart] = {}
    for direction in ("read", "write"):
        mine = [row for row in rows if row["direction"] == direction]
        series = [charts.Series(name, [(row["batch"], row[key]) for row in mine])
                  for key, name in (("gpu", "virtual GPU"), ("tables", "one core, tables"),
                                    ("instructions", "one core, AES instructions"))]
        made[f"crypto-{direction}"] = charts.Lines(
            f"AES-256-XTS, {direction} ({device})",
            charts.Axis("size of a batch", logarithmic=True, base=2, bytes=True),
            charts.Axis("MB/s", logarithmic=True), series)
    return made


def _seconds(said: str) -> float:
    """What busybox's `time` says of a command."""
    match = re.search(r"real\s+(\d+)m\s*([\d.]+)s", said)
    if not match:
        raise Failure(f"no time in: {said}")
    return int(match[1]) * 60 + float(match[2])


def _on_device(disk: encrypted.Disk, cipher: str, mib: int, rounds: int) -> dict[str, float]:
    """MB/s of a round's fastest, written and read past the page cache."""
    device = disk.map(cipher)
    best = {"write": 0.0, "read": 0.0}
    for _ in range(rounds):
        for direction, ends in (("write", f"if=/tmp/plain of={device} oflag=direct"),
                                ("read", f"if={device} of=/dev/null iflag=direct")):
            said = disk.shell(f"time dd {ends} bs=1M count={mib} 2>&1", SECONDS)
            best[direction] = max(best[direction], mib * 1.048576 / max(_seconds(said), 0.01))
    return best


def in_vm(mib: int, rounds: int) -> list[dict]:
    """The same by a guest's kernel; a line for each cipher."""
    host.start_vgpud()
    host.start_libvirt()
    vm = Vm("bench", "bench1")
    try:
        vm.up()
        disk = encrypted.Disk(vm.agent())
        disk.load()
        disk.fill(mib)
        rows = []
        for name, cipher in CIPHERS.items():
            say(f"an encrypted device by {cipher}")
            rows.append({"cipher": name, **_on_device(disk, cipher, mib, rounds), "right": disk.is_filled(mib)})
        return rows
    finally:
        vm.remove()
        host.stop_vgpud()
        host.stop_libvirt()


def vm_table(rows: list[dict]) -> str:
    lines: list[tuple] = [("cipher", "write MB/s", "read MB/s", "right")]
    lines += [(row["cipher"], f"{row['write']:.1f}", f"{row['read']:.1f}", "yes" if row["right"] else "NO")
              for row in rows]
    return "\n".join(columns(lines))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tools/bench crypto", description=__doc__)
    parser.add_argument("--device", choices=["soft", "gpu"], default="soft")
    parser.add_argument("--sizes", type=lambda text: [int(word) for word in text.split(",")], default=list(SIZES_KIB),
                        help="of batches, KiB, with commas; multiples of 4, at most 1024")
    parser.add_argument("--mib", type=int, help="how much; 4 on the software device and in the VM, else 64")
    parser.add_argument("--rounds", type=int, default=5, help="their median counts; in the VM the best")
    parser.add_argument("--vm", action="store_true", help="by the kernel of a guest, on the software device")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of a table")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="JSON, the table and SVG charts go there")
    parser.add_argument("--from", dest="stored", type=pathlib.Path, metavar="FILE",
                        help="draw the charts of crypto.json that an earlier run has written; measure nothing")
    return parser


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.stored:
        return charts.redraw(options.stored, options.out)
    device = "cuda:0" if options.device == "gpu" else "soft"
    mib = options.mib or (64 if options.device == "gpu" else 4)
    pictures: dict[str, charts.Chart] = {}
    with contextlib.redirect_stdout(sys.stderr), only_one():
        host.use_device(device)
        if options.vm:
            setup.prepare()
            rows = in_vm(mib, options.rounds)
        else:
            setup.prepare_for(device)
            rows = direct(device, mib, options.rounds, options.sizes)
            pictures = drawn(rows, device)
    text = vm_table(rows) if options.vm else table(rows)
    result = {"device": device, "results": rows}
    charts.store(options.out, "crypto", result, text, pictures)
    print(json.dumps(result, indent=1) if options.json else text)
    return exit_status([f"{row.get('direction') or row['cipher']}: bytes are wrong"
                        for row in rows if not row["right"]])
