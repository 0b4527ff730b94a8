"""Sizes: as vgpud's configuration writes them (8G), and as Kubernetes does (8Gi)."""
import decimal
import re

_BINARY = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_KUBERNETES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18,
               "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}


def parse_size(text: str) -> int:
    """8G, 512M, 1.5G and plain bytes; powers of 1024. ValueError: another text."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)(?:iB|B)?", text, re.ASCII)
    if not match:
        raise ValueError(f"'{text}' is not a size such as 8G or 512M")
    return int(decimal.Decimal(match[1]) * (1 << _BINARY[match[2]]))


def parse_quantity(text: str) -> int:
    """A quantity of Kubernetes', rounded up. ValueError: another text, or more than 2^63."""
    match = re.fullmatch(r"\+?(\d+(?:\.\d*)?|\.\d+)(?:([KMGTPE]i|[kMGTPEm])|[eE]([+-]?\d{1,2}))?", text, re.ASCII)
    if not match:
        raise ValueError(f"'{text}' is not a quantity such as 8Gi")
    number = decimal.Decimal(match[1])
    value = number / 1000 if match[2] == "m" else number * _KUBERNETES[match[2] or ""]
    if match[3]:
        value = value.scaleb(int(match[3]))
    if value >= 1 << 63:
        raise ValueError(f"'{text}' is too large")
    return int(value.to_integral_value(decimal.ROUND_CEILING))
