"""tools/bench transfers: kernels of several tenants whose data come with them (Kernelet's case II, figures 8 and 9).

Each instance of a kernel copies its input in first. Overlapped: copies of some run beside kernels of others, and a
kernel takes part in a plan once its data are there ([slices] await_copies). Not overlapped: all copies, then all
kernels; the two times are added. Planned: kernelet; else whole kernels in pairs (consolidation). `sf`: the scale factor
of data and work."""
import argparse

from benchmarks import mps_measure, mps_waves
from benchmarks.mps_cases import MIXES, kernels_of, kernels_of_all
from benchmarks.mps_measure import Setting
from benchmarks.mps_run import BenchTenant, check, soon
from benchmarks.results import columns
from lab.daemon import BenchDaemon
from lab.shell import say

PLANNED, NOT_PLANNED = "kernelet", "consolidation"
PART = 0.1           # of what a kernel takes alone, that copying its input takes
COPIES = 5           # from which the bandwidth is known
PROBE_BYTES = {"soft": 2 << 20, "gpu": 64 << 20}
WAYS = ("Y,Y", "N,Y", "Y,N", "N,N")  # overlapped, planned


def _copying(tenants: list[BenchTenant], count: int, bytes_of: dict[str, int]) -> float:
    """Nanoseconds in which each copies so often, all at once."""
    begin = soon()
    for tenant in tenants:
        tenant.start("copies", begin, count, bytes_of[tenant.kernel])
    return max(end for tenant in tenants for _, _, end in tenant.instances(60)) - begin


def _under(mode: str, options, setting: Setting) -> list[dict]:
    """Seconds of each mix and scale under a mode: kernels alone, with copies, copies alone."""
    found = []
    planned = mode == PLANNED
    daemon = BenchDaemon(setting.device, mps_measure.POLICY, "auto" if planned else "", mode,
                         cut={"await_copies": True})
    try:
        names = kernels_of_all(options.mixes)
        kernels = [setting.kernels[name] for name in names]
        with mps_measure.ready_tenants(daemon, setting.log_words, "mps", kernels) as ready:
            tenants = dict(zip(names, ready))
            mps_measure.keep_busy(ready, mps_measure.WARM_LAUNCHES * sum(one["alone_ns"] for one in kernels) / 1e9)
            probe = {ready[0].kernel: PROBE_BYTES[options.device]}
            rate = COPIES * probe[ready[0].kernel] / _copying(ready[:1], COPIES, probe)  # bytes a nanosecond
            for mix in options.mixes:
                for times in options.scales:
                    brings = {name: int(rate * PART * times * setting.kernels[name]["alone_ns"])
                              for name in kernels_of(mix)}
                    alone = mps_measure.run_mix(daemon, setting, tenants, mix, None, times)
                    both = mps_measure.run_mix(daemon, setting, tenants, mix, brings, times)
                    copies = _copying([tenants[name] for name in kernels_of(mix)], both["count"], brings) / 1e9
                    found.append({"mix": mix, "sf": times, "kernels_s": alone["total_s"], "both_s": both["total_s"],
                                  "copies_s": copies, "planned": both["planned"]})
                    say(f"  {mix}, sf {times:g}: kernels {alone['total_s']:.3f} s, with copies {both['total_s']:.3f}, "
                        f"copies {copies:.3f}")
            check(ready)
    finally:
        daemon.end()
    return found


def measure(options, setting: Setting) -> list[dict]:
    """A row for each mix and scale: seconds by way."""
    by_mode = {}
    for mode in (PLANNED, NOT_PLANNED):
        say(f"copies and kernels: {mode}")
        by_mode[mode] = _under(mode, options, setting)
    rows = []
    for planned, whole in zip(by_mode[PLANNED], by_mode[NOT_PLANNED]):
        copies = (planned["copies_s"] + whole["copies_s"]) / 2
        seconds = {"Y,Y": planned["both_s"], "N,Y": planned["kernels_s"] + copies,
                   "Y,N": whole["both_s"], "N,N": whole["kernels_s"] + copies}
        hidden = min(1.0, max(0.0, 1 - (planned["both_s"] - planned["kernels_s"]) / copies))
        rows.append({"mix": planned["mix"], "sf": planned["sf"], "seconds": seconds, "copies_s": copies,
                     "hidden": hidden, "planned": planned["planned"]})
    return rows


def table(rows: list[dict]) -> str:
    lines: list[tuple] = [("mix", "sf", *(f"{way} s" for way in WAYS), "copies s", "of these hidden %", "pairs")]
    lines += [(row["mix"], f"{row['sf']:g}", *(f"{row['seconds'][way]:.3f}" for way in WAYS), f"{row['copies_s']:.3f}",
               f"{100 * row['hidden']:.0f}", row["planned"].get("pairs", 0)) for row in rows]
    return "\n".join(columns(lines))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tools/bench transfers", description=__doc__)
    parser.add_argument("--mixes", default="MIX", help=f"of {','.join(MIXES)}")
    parser.add_argument("--scales", default="1,2.5", help="scale factors")
    mps_waves.add_options(parser, 1.0, "of work in each run, at scale 1")
    return parser


def run(arguments: list[str]) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    options.mixes, options.scales = options.mixes.split(","), [float(word) for word in options.scales.split(",")]
    if unknown := [mix for mix in options.mixes if not kernels_of(mix)]:
        parser.error(f"no mix {', '.join(unknown)}; there are {', '.join(MIXES)}")
    return mps_waves.run("transfers", options, kernels_of_all(options.mixes), measure, table)
