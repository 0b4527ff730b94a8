"""/etc/bandsaw/kubernetes.toml: what pods of this node may ask for, and how it is handed to them."""
import dataclasses
import difflib
import pathlib
import re
import tomllib
from typing import Any

from fleet.kubernetes.quantity import parse_size

DOMAIN = "bandsaw.dev"  # of resources
MEMORY_LEAST = 16 << 20  # of a virtual GPU


class Wrong(Exception):
    """What is wrong in the file, for a person to mend."""


@dataclasses.dataclass(frozen=True)
class Profile:
    """The resource `bandsaw.dev/NAME`: virtual GPUs of one size."""
    name: str
    memory: int  # bytes
    compute: int = 1  # percent of the engines, as vgpuctl create has them
    copy: int = 1
    cap: int = 100
    latency_us: int = 0
    sharing: str = "time-sliced"
    group: str = ""  # of mps: pods of one group trust each other; without it each has its GPU's MPS alone
    count: int = 0  # offered at most; 0: as many as the devices have room for

    def body(self, name: str) -> dict:
        """What vgpud is asked for."""
        return {"name": name, "memory": self.memory, "compute": self.compute, "copy": self.copy, "cap": self.cap,
                "latency_us": self.latency_us, "sharing": self.sharing,
                "group": self.group if self.sharing == "mps" else ""}


@dataclasses.dataclass(frozen=True)
class Pods:
    """What a container finds inside."""
    libraries: str = "/usr/lib/x86_64-linux-gnu/bandsaw"  # with libcuda.so.1, on this node
    inside: str = "/usr/local/nvidia/lib64"  # where it is mounted
    search: str = "/usr/local/nvidia/lib:/usr/local/nvidia/lib64"  # LD_LIBRARY_PATH
    owner: str = ""  # USER or @GROUP of this node whose programs alone may use them; empty: those of the pod
    cdi: bool = False  # device plugin: names of CDI devices instead of mounts and variables
    cdi_folder: str = "/var/run/cdi"

    def access(self) -> dict:
        """Whom vgpud lets open the socket. Without an owner anybody: a pod's user is not known, and it sees no other's
        socket."""
        return {"owner": self.owner} if self.owner else {"direct_mode": "0666"}


@dataclasses.dataclass(frozen=True)
class Settings:
    profiles: tuple[Profile, ...] = ()
    pods: Pods = Pods()
    run: str = "/run/bandsaw"  # vgpud's folder of sockets
    kubelet: str = "/var/lib/kubelet"
    keep_seconds: int = 20  # what no pod has for so long is given back


_LIMITS = {"compute": (1, 100), "copy": (1, 100), "cap": (1, 100), "latency_us": (0, 1_000_000), "count": (0, 1000),
           "keep_seconds": (1, 86_400)}


def _known(table: str, words: dict, names: list[str]) -> None:
    for word in words:
        if word not in names:
            near = difflib.get_close_matches(word, names, 1)
            raise Wrong(f"{table} has no '{word}'" + (f"; did you mean '{near[0]}'?" if near else
                                                      f"; it has {', '.join(names)}"))


def _checked(table: str, words: dict, kind: Any) -> dict:
    """Values of the types and in the ranges that `kind`, a dataclass, has them."""
    fields: dict[str, Any] = {field.name: field.type for field in dataclasses.fields(kind) if field.name != "name"}
    _known(table, words, list(fields))
    for name, value in words.items():
        if type(value) is not fields[name]:
            raise Wrong(f"{table}: {name} must be {fields[name].__name__}, not {value!r}")
        low, high = _LIMITS.get(name, (0, 0))
        if high and not low <= value <= high:
            raise Wrong(f"{table}: {name} = {value} is not from {low} to {high}")
    return words


def _profile(name: str, words: Any) -> Profile:
    table = f"[profiles.{name}]"
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", name):
        raise Wrong(f"{table}: a name has 1 to 32 of a-z, 0-9 and '-', and begins and ends with a letter or digit")
    if not isinstance(words, dict) or not isinstance(words.get("memory"), str):
        raise Wrong(f"{table}: memory is missing; give a size, as in memory = \"8G\"")
    try:
        memory = parse_size(words["memory"])
    except ValueError as error:
        raise Wrong(f"{table}: memory: {error}") from error
    if memory < MEMORY_LEAST:
        raise Wrong(f"{table}: memory must be at least 16M")
    profile = Profile(name, **_checked(table, {**words, "memory": memory}, Profile))
    if profile.sharing not in ("time-sliced", "mps"):
        raise Wrong(f"{table}: sharing is time-sliced or mps, not '{profile.sharing}'")
    return profile


def parse(text: str) -> Settings:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Wrong(str(error)) from error
    _known("the file", tables, ["profiles", "pods", "node"])
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise Wrong(f"{name} must be a table, as in [{name}]")
    profiles = tuple(_profile(name, words) for name, words in tables.get("profiles", {}).items())
    node = _checked("[node]", tables.get("node", {}), Settings)
    _known("[node]", node, ["run", "kubelet", "keep_seconds"])
    return Settings(profiles, Pods(**_checked("[pods]", tables.get("pods", {}), Pods)), **node)


def read(path: pathlib.Path) -> Settings:
    try:
        return parse(path.read_text())
    except OSError as error:
        raise Wrong(f"cannot read it: {error.strerror}") from error
