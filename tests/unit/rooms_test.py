"""Holds the tree against the plan of its rooms: who may include whom, and how large a file may grow."""
import pathlib
import re

from lab.paths import REPO

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
    "backend/session": ["backend/sandbox", "backend/control", "guest-driver/uapi", "memory", "hypervisor",
                        "vgpu-sched"],
    "backend/runner": ["backend/sandbox", "backend/control", "backend/device", "guest-driver/uapi", "memory",
                       "vgpu-sched"],
    "backend/vgpud": ["backend/control", "guest-driver/uapi", "memory", "hypervisor", "vgpu-sched"],
    "tools/vgpuctl": ["backend/control", "memory/base", "hypervisor/libvirt"],
}
LINES_MAX = 500
FOLDERS = ["backend", "guest-driver", "hypervisor", "memory", "vgpu-sched", "tools", "tests"]
SOURCES = {".c", ".cc", ".h", ".py", ".cu"}


def room_of(path: str) -> str | None:
    rooms = [room for room in MAY_INCLUDE if path.startswith(room + "/")]
    return max(rooms, key=len, default=None)


def strangers(file: pathlib.Path) -> list[str]:
    """The includes of a file that its room may not have."""
    name = file.relative_to(REPO).as_posix()
    room = room_of(name)
    if room is None:
        return []
    wrong = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        target = match and match.group(1)
        if not target or not (REPO / target).exists():
            continue  # beside the file, generated, or a system header
        if target.startswith(room + "/") or any(target.startswith(allowed + "/") for allowed in MAY_INCLUDE[room]):
            continue
        wrong.append(f"{name}:{number}: {room} may not include {target}")
    return wrong


def sources(suffixes: set[str]) -> list[pathlib.Path]:
    found = [file for folder in FOLDERS for file in sorted((REPO / folder).rglob("*"))
             if file.suffix in suffixes and file.is_file()]
    assert len(found) > 100, f"only {len(found)} files: is {REPO} the repository?"
    return found


def test_rooms_include_only_from_those_that_they_may():
    wrong = [text for file in sources({".c", ".cc", ".h"}) for text in strangers(file)]
    assert not wrong, "\n".join(wrong)


def test_no_file_has_two_subjects():
    lengths = {file: len(file.read_text().splitlines()) for file in sources(SOURCES)}
    wrong = [f"{file.relative_to(REPO)}: {lines} lines; over {LINES_MAX} there is a second subject in it"
             for file, lines in lengths.items() if lines > LINES_MAX]
    assert not wrong, "\n".join(wrong)
