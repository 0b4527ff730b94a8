"""What a container gets of virtual GPUs: as mounts and variables, and as files of the Container Device Interface."""
import json
import os
import pathlib
import re
import tempfile

from fleet.kubernetes.settings import Pods

KIND = "bandsaw.dev/vgpu"
VERSION = "0.5.0"  # the newest that podman 4.3 and the runtimes of Debian 12 take


def variables(names: list[str], pods: Pods) -> dict[str, str]:
    return {"BANDSAW_VGPU": ",".join(names), "BANDSAW_RUN": "/run/bandsaw", "LD_LIBRARY_PATH": pods.search}


def mounts(names: list[str], pods: Pods, run: str) -> list[tuple[str, str, bool]]:
    """Of the node, inside, read-only. The socket alone: beside it lie those for administrators, who root is."""
    sockets = [(f"{run}/{name}/direct.sock", f"/run/bandsaw/{name}/direct.sock", False) for name in names]
    return [(pods.libraries, pods.inside, True), *sockets]


def device(name: str, names: list[str], pods: Pods, run: str, chosen: str = "") -> dict:
    """A CDI device that brings these virtual GPUs. `chosen`: of BANDSAW_VGPU, in place of their names; with "*" a
    container may have several such devices, whose variables would else hide each other."""
    bound = [{"hostPath": host, "containerPath": inside,
              "options": ["bind", "nosuid", "nodev", *(["ro"] if read_only else [])]}
             for host, inside, read_only in mounts(names, pods, run)]
    env = [f"{key}={value}" for key, value in variables([chosen] if chosen else names, pods).items()]
    return {"name": name, "containerEdits": {"env": env, "mounts": bound}}


def spec(devices: list[dict]) -> dict:
    return {"cdiVersion": VERSION, "kind": KIND, "devices": devices}


def qualified(name: str) -> str:
    return f"{KIND}={name}"


def _path(folder: str, name: str) -> pathlib.Path:
    assert re.fullmatch(r"[a-z0-9-]+", name), name
    return pathlib.Path(folder) / f"bandsaw.dev-{name}.json"


def write(folder: str, name: str, devices: list[dict]) -> None:
    """Readers see all of it or nothing."""
    path = _path(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=".bandsaw-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w") as file:
            json.dump(spec(devices), file, indent=2)
        os.chmod(temporary, 0o644)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def remove(folder: str, name: str) -> None:
    _path(folder, name).unlink(missing_ok=True)
