#!/usr/bin/env python3
"""Holds the tree against the plan of its rooms: who may include whom, and how large a file may grow."""
import pathlib
import re
import sys

# Room -> the rooms it may include from. The longest matching prefix of a file decides its room. Itself is allowed.
MAY_INCLUDE = {
    "guest-driver/uapi": [],
    "guest-driver/kernel": ["guest-driver/uapi"],
    "guest-driver/libcuda": ["guest-driver/uapi"],
    "memory": [],
    "vgpu-sched": [],
    "hypervisor": ["guest-driver/uapi", "memory/base"],
    "backend/control": ["guest-driver/uapi", "memory"],
    "backend/device": ["guest-driver/uapi", "memory", "vgpu-sched"],
    "backend/sandbox": ["memory/base"],
    "backend/session": ["backend/sandbox", "backend/control", "guest-driver/uapi", "memory", "hypervisor", "vgpu-sched"],
    "backend/runner": ["backend/sandbox", "backend/control", "backend/device", "guest-driver/uapi", "memory", "vgpu-sched"],
    "backend/vgpud": ["backend/control", "guest-driver/uapi", "memory", "hypervisor", "vgpu-sched"],
    "tools/vgpuctl": ["backend/control", "memory/base", "hypervisor/libvirt"],
}
LINES_MAX = 500
SOURCES = {".c", ".cc", ".h", ".py", ".cu"}


def room_of(path: str) -> str | None:
    rooms = [room for room in MAY_INCLUDE if path.startswith(room + "/")]
    return max(rooms, key=len, default=None)


def check_includes(root: pathlib.Path, file: pathlib.Path) -> list[str]:
    name = file.relative_to(root).as_posix()
    room = room_of(name)
    if room is None:
        return []
    wrong = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        target = match and match.group(1)
        if not target or not (root / target).exists():
            continue  # beside the file, generated, or a system header
        if target.startswith(room + "/") or any(target.startswith(allowed + "/") for allowed in MAY_INCLUDE[room]):
            continue
        wrong.append(f"{name}:{number}: {room} may not include {target}")
    return wrong


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    wrong = []
    for folder in ["backend", "guest-driver", "hypervisor", "memory", "vgpu-sched", "tools", "tests"]:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SOURCES or not file.is_file():
                continue
            if file.suffix in {".c", ".cc", ".h"}:
                wrong += check_includes(root, file)
            lines = len(file.read_text().splitlines())
            if lines > LINES_MAX:
                wrong.append(f"{file.relative_to(root)}: {lines} lines; over {LINES_MAX} there is a second subject in it")
    print("\n".join(wrong) if wrong else "every room keeps to the plan")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
