"""How many virtual GPUs of a size vgpud's devices have, and still have, room for."""
from fleet.kubernetes.settings import Profile


def _fit(device: dict, profile: Profile, memory: int, compute: int, copy: int) -> int:
    return max(0, min((device["memory"] - memory) // profile.memory, (100 - compute) // profile.compute,
                      (100 - copy) // profile.copy))


def capacity(devices: list[dict], profile: Profile) -> int:
    """If nobody had anything."""
    return sum(_fit(device, profile, 0, 0, 0) for device in devices)


def left(devices: list[dict], profile: Profile) -> int:
    """Beside all that is given out now."""
    return sum(_fit(device, profile, device["memory_given"], device["compute_given"], device["copy_given"])
               for device in devices)
