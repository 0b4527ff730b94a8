"""Where things are. Everything that can be made again lies in the cache."""
import os
import pathlib

REPO = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BANDSAW_BUILD", REPO / "build" / "default"))
# What makes NVRTC and nvJitLink give PTX, for programs on the software device.
CUPTI = BUILD / "guest-driver/cupti/libcupti.so.13"
PTX_PRELOAD = BUILD / "guest-driver/ptx_preload/libbandsaw-ptx.so.1"


def cache() -> pathlib.Path:
    default = "/var/cache/bandsaw" if os.geteuid() == 0 else "~/.cache/bandsaw"
    path = pathlib.Path(os.environ.get("BANDSAW_CACHE") or default).expanduser()
    path.mkdir(parents=True, exist_ok=True)
    return path


def lab_dir() -> pathlib.Path:
    """State of the running lab: sockets, registry, images, logs. Short, because socket paths are bounded."""
    path = cache() / "lab"
    path.mkdir(parents=True, exist_ok=True)
    return path


def environment(run: pathlib.Path | None = None) -> dict[str, str]:
    """What Bandsaw's programs need to find each other inside the lab."""
    run = run or lab_dir() / "run"
    return {
        **os.environ,
        "BANDSAW_RUN": str(run),
        "BANDSAW_STATE": str(run.parent / "state"),
        "BANDSAW_LIBEXEC": str(BUILD / "backend"),
    }
