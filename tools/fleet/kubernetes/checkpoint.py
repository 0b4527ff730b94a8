"""What the kubelet has written down of devices: a kubelet that starts anew knows from there who has which."""
import json
import pathlib


class Strange(Exception):
    """The file is not as kubelets from 1.20 on write it."""


def read(folder: pathlib.Path) -> dict[str, set[str]]:
    """IDs by resource; nothing where there is no file yet."""
    path = folder / "kubelet_internal_checkpoint"
    try:
        entries = json.loads(path.read_bytes())["Data"]["PodDeviceEntries"] or []
        found: dict[str, set[str]] = {}
        for entry in entries:
            nodes = entry["DeviceIDs"]  # by NUMA node; kubelets before 1.20 had one list
            ids = nodes if isinstance(nodes, list) else [one for few in nodes.values() for one in few]
            found.setdefault(entry["ResourceName"], set()).update(ids)
        return found
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Strange(f"{path} is not as expected ({error!r}): nothing is given back") from error
