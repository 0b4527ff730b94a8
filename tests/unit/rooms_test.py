"""Holds the tree against the plan of its rooms: who may include whom, how large a file may grow, what is optimised."""
import pathlib
import re
import subprocess

import pytest

from lab.paths import REPO

# Room -> the folders whose headers it includes; or a header, where the rest of its folder is not meant. A folder's own
# subfolders are named too. The longest matching prefix of a file decides its room; its own room it may always include.
# The plan is what is used: an arrow that nobody needs goes.
MAY_INCLUDE = {
    "guest-driver/uapi": [],
    "guest-driver/kernel": [],
    "guest-driver/ptx_preload": [],
    "guest-driver/libcuda/api": ["guest-driver/libcuda", "guest-driver/libcuda/core", "guest-driver/uapi",
                                "memory/base/clock.h", "memory/base/range_allocator.h", "memory/managed"],
    "guest-driver/libcuda/core": ["guest-driver/libcuda", "guest-driver/uapi", "memory/base/clock.h",
                                 "memory/base/unique_fd.h", "memory/base/uuid_text.h", "memory/base/virtual_gpus.h",
                                 "memory/base/yield.h", "memory/managed/work_table.h"],
    "guest-driver/cupti": ["guest-driver/uapi", "memory/base/clock.h"],
    "guest-driver/nvml": ["guest-driver/uapi", "memory/base/uuid_text.h", "memory/base/version.h",
                          "memory/base/virtual_gpus.h"],
    "memory/base": [],
    "memory": [],
    "memory/managed": [],
    "memory/segment": [],
    "memory/swap": [],
    "vgpu-sched": [],
    "vgpu-sched/policy": ["vgpu-sched/engine.h"],
    "vgpu-sched/slice": [],
    "vgpu-sched/ptx": [],
    "hypervisor/libvirt": ["memory/base"],
    "hypervisor/vfio_user": ["hypervisor/virtio", "memory/base"],
    "hypervisor/virtio": ["guest-driver/uapi", "memory/base"],
    "hypervisor/xen": ["guest-driver/uapi", "hypervisor/virtio", "memory/base"],
    "backend/control": ["guest-driver/uapi/vgpu_control.h", "memory/base", "vgpu-sched/engine.h"],
    "backend/control/saved": ["memory/base"],
    "backend/sandbox": ["backend/control/packet.h", "memory/base"],
    "backend/device": ["guest-driver/uapi", "memory/base", "memory/swap/book.h", "vgpu-sched/engine.h",
                       "vgpu-sched/ptx/guard_area.h"],
    "backend/device/image": ["vgpu-sched/ptx"],
    "backend/device/cuda": ["backend/device", "backend/device/image", "guest-driver/uapi", "memory", "memory/base",
                            "memory/swap/book.h", "memory/swap/exchange.h", "vgpu-sched/ptx"],
    "backend/device/soft": ["backend/device", "backend/device/image", "guest-driver/uapi", "memory", "memory/base",
                            "memory/swap/book.h", "backend/device/soft/timing"],
    "backend/device/soft/timing": [],
    "backend/device/soft/codegen": ["backend/device/code_keeper.h", "backend/device/soft",
                                    "backend/device/soft/timing", "guest-driver/uapi",
                                    "memory/base", "vgpu-sched/ptx"],
    "backend/session": ["backend/control", "backend/control/saved", "backend/sandbox", "guest-driver/uapi",
                        "hypervisor/vfio_user", "hypervisor/virtio", "hypervisor/xen", "memory/base",
                        "memory/segment"],
    "backend/runner": ["backend/control", "backend/device", "backend/runner/channels",
                       "backend/runner/execution", "backend/runner/guard", "backend/runner/handlers",
                       "backend/runner/saved", "backend/runner/slicing", "backend/runner/swap", "backend/runner/wire",
                       "backend/sandbox", "guest-driver/uapi", "memory/base"],
    "backend/runner/channels": ["backend/control", "memory/base"],
    "backend/runner/execution": ["backend/control", "backend/device", "backend/runner/wire", "memory/base",
                                 "vgpu-sched"],
    "backend/runner/guard": ["backend/device", "backend/device/image", "memory/base", "vgpu-sched/ptx"],
    "backend/runner/handlers": ["backend/control", "backend/device", "backend/runner/execution",
                                "backend/runner/guard", "backend/runner/memory", "backend/runner/objects",
                                "backend/runner/slicing", "backend/runner/wire", "guest-driver/uapi", "memory/base"],
    "backend/runner/memory": ["backend/control", "backend/device", "guest-driver/uapi", "memory/base",
                              "memory/swap/neighbours.h"],
    "backend/runner/objects": ["backend/control", "backend/device", "guest-driver/uapi", "memory/base",
                               "memory/share.h"],
    "backend/runner/saved": ["backend/control", "backend/control/saved", "backend/device", "backend/runner",
                             "backend/runner/handlers/node_payload.h", "backend/runner/memory",
                             "backend/runner/objects", "backend/runner/wire", "guest-driver/uapi", "memory/base"],
    "backend/runner/slicing": ["backend/control", "backend/device", "backend/device/image",
                               "backend/runner/execution", "backend/runner/handlers", "backend/runner/memory",
                               "backend/runner/wire", "memory/base", "vgpu-sched/ptx", "vgpu-sched/slice"],
    "backend/runner/swap": ["backend/device", "backend/runner/execution/clock.h", "backend/runner/memory",
                            "guest-driver/uapi", "memory/base", "memory/swap", "vgpu-sched/ptx/pointers.h"],
    "backend/runner/wire": ["backend/device", "backend/runner", "backend/runner/memory", "guest-driver/uapi",
                            "memory/base"],
    "backend/vgpud": ["backend/control", "backend/sandbox/cgroup.h", "backend/vgpud/api", "backend/vgpud/arbiter",
                      "backend/vgpud/metrics", "backend/vgpud/sessions", "memory/base"],
    "backend/vgpud/api": ["backend/control", "backend/vgpud", "backend/vgpud/arbiter", "backend/vgpud/sessions",
                          "hypervisor/libvirt", "memory/base", "vgpu-sched/policy"],
    "backend/vgpud/arbiter": ["backend/control", "backend/vgpud", "memory/base", "memory/swap/lending.h",
                              "vgpu-sched/policy", "vgpu-sched/slice"],
    "backend/vgpud/metrics": ["backend/control/event_ptr.h", "backend/vgpud/api", "memory/base", "vgpu-sched/engine.h"],
    "backend/vgpud/mps": ["backend/control", "memory/base"],
    "backend/vgpud/sessions": ["backend/control", "backend/sandbox/cgroup.h", "backend/vgpud",
                               "backend/vgpud/arbiter", "backend/vgpud/mps", "memory/base"],
    "tools/vgpuctl": ["backend/control", "backend/control/saved", "hypervisor/libvirt", "hypervisor/libvirt/hook",
                      "hypervisor/xen", "memory/base", "vgpu-sched/engine.h"],
    "tools/fleet/slurm": ["backend/control", "memory/base"],
    "tools/ptx": ["backend/device/image", "vgpu-sched/ptx"],
    "tools/timing": ["backend/device/soft/timing", "memory/base"],
    "tools/gen": ["backend/device", "guest-driver/libcuda", "guest-driver/libcuda/api", "guest-driver/libcuda/core",
                  "guest-driver/cupti", "guest-driver/nvml", "guest-driver/uapi", "vgpu-sched/engine.h"],
}
LINES_MAX = 500
FOLDERS = ["backend", "guest-driver", "hypervisor", "memory", "vgpu-sched", "tools", "tests"]
# The rest, tools/benchmarks with its research and the tests, may include all of this; none of this includes the rest.
PRODUCTION = ("backend/", "guest-driver/", "hypervisor/", "memory/", "vgpu-sched/", "tools/vgpuctl/", "tools/fleet/",
              "tools/ptx/", "tools/timing/", "tools/gen/")
SOURCES = {".c", ".cc", ".h", ".py", ".cu"}


def room_of(path: str) -> str | None:
    rooms = [room for room in MAY_INCLUDE if path.startswith(room + "/")]
    return max(rooms, key=len, default=None)


def arrow_to(target: str, arrows: list[str]) -> str | None:
    """Of these arrows, the one that names the header itself or else its folder."""
    return next((name for name in (target, target.rpartition("/")[0]) if name in arrows), None)


def includes(file: pathlib.Path) -> list[tuple[int, str]]:
    """The headers of this repository that a file, or code generated by it, includes from the root: line and path."""
    found = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if match and match.group(1).startswith(tuple(folder + "/" for folder in FOLDERS)):
            found.append((number, match.group(1)))
    return found


def walk() -> tuple[list[str], set[tuple[str, str]]]:
    """Includes that no arrow allows, and the arrows that some include needs."""
    wrong: list[str] = []
    needed: set[tuple[str, str]] = set()
    for file in [*sources({".c", ".cc", ".h"}), *sorted((REPO / "tools/gen").glob("*.py"))]:
        name = file.relative_to(REPO).as_posix()
        room = room_of(name)
        if room is None:
            continue
        for number, target in includes(file):
            arrow = arrow_to(target, MAY_INCLUDE[room])
            if arrow:
                needed.add((room, arrow))
            elif room_of(target) != room:
                wrong.append(f"{name}:{number}: {room} may not include {target}")
    return wrong, needed


def sources(suffixes: set[str]) -> list[pathlib.Path]:
    found = [file for folder in FOLDERS for file in sorted((REPO / folder).rglob("*"))
             if file.suffix in suffixes and file.is_file()]
    assert len(found) > 100, f"only {len(found)} files: is {REPO} the repository?"
    return found


def test_rooms_include_only_from_those_that_they_may():
    wrong, _ = walk()
    assert not wrong, "\n".join(wrong)


def test_no_arrow_is_there_that_nobody_needs():
    _, needed = walk()
    idle = [f"{room} includes nothing of {arrow}" for room, arrows in MAY_INCLUDE.items() for arrow in arrows
            if (room, arrow) not in needed]
    assert not idle, "\n".join(idle)


def test_every_production_file_is_in_a_room():
    homeless = [name for file in sources({".c", ".cc", ".h"}) if (name := file.relative_to(REPO).as_posix())
                and name.startswith(PRODUCTION) and room_of(name) is None]
    assert not homeless, "\n".join(homeless)


@pytest.mark.skipif(not (REPO / ".git").exists(), reason="only git knows what belongs to the tree")
def test_nothing_else_lies_at_the_top():
    listed = subprocess.run(["git", "ls-files"], cwd=REPO, capture_output=True, text=True, check=True).stdout.split()
    folders = {name.split("/")[0] for name in listed if "/" in name}
    assert folders == {*(room.split("/")[0] for room in MAY_INCLUDE), ".ci", "debian", "tests", "tools"}


def test_production_includes_neither_research_nor_tests():
    wrong = [f"{room} -> {arrow}" for room, arrows in MAY_INCLUDE.items() for arrow in arrows
             if not f"{arrow}/".startswith(PRODUCTION)]
    assert not wrong, "\n".join(wrong)


# What a CUDA call passes through. It is optimised in every build, or what is measured in one is not what users have.
CALL_PATH = ("guest-driver/libcuda", "memory", "hypervisor/virtio", "backend/runner", "backend/device/cuda",
             "backend/device/soft")


@pytest.mark.parametrize("folder", CALL_PATH)
def test_what_calls_pass_through_is_optimised(folder):
    assert "on_call_path" in (REPO / folder / "meson.build").read_text()


def test_no_file_has_two_subjects():
    lengths = {file: len(file.read_text().splitlines()) for file in sources(SOURCES)}
    wrong = [f"{file.relative_to(REPO)}: {lines} lines; over {LINES_MAX} there is a second subject in it"
             for file, lines in lengths.items() if lines > LINES_MAX]
    assert not wrong, "\n".join(wrong)
