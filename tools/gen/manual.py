"""Manual pages of the guest: bandsaw-libcuda(7) from the rows of environment.toml, virtio_vgpu(4) and vgpu_crypto(4)
from what the modules' sources say of their parameters."""

import re
import tomllib

import wire

KEYS = {"value", "default", "text"}
# module_param(NAME, TYPE, MODE) and the text for `modinfo`.
PARAMETER = re.compile(r"^module_param\((\w+), (\w+), 0(\d+)\);\s*MODULE_PARM_DESC\(\1, \"([^\"]*)\"\);", re.MULTILINE)
DEFAULT = r"^static [\w ]+ {} = (\w+);"


def load(environment, kernel, version):
    """Rows of the variables, the modules' parameters, and the release."""
    rows = tomllib.loads(environment.read_text())
    for name, row in rows.items():
        if unknown := set(row) - KEYS:
            raise wire.RowError(f"[{name}]: unknown key {sorted(unknown)[0]}")
        if not row.get("text") or not row.get("value"):
            raise wire.RowError(f"[{name}]: it needs 'value' and 'text'")
    of_crypto = sorted(kernel.glob("crypto_*.c"))
    of_driver = sorted(set(kernel.glob("*.c")) - set(of_crypto))
    return {"variables": rows, "version": version,
            "parameters": {"virtio_vgpu": _parameters(of_driver), "vgpu_crypto": _parameters(of_crypto)}}


def _parameters(files):
    found = {}
    for file in files:
        text = file.read_text()
        described = PARAMETER.findall(text)
        if len(described) != len(re.findall(r"^module_param", text, re.MULTILINE)):
            raise wire.RowError(f"{file.name}: a module_param() without MODULE_PARM_DESC() after it")
        for name, kind, mode, about in described:
            default = re.search(DEFAULT.format(name), text, re.MULTILINE)
            found[name] = {"type": kind, "writable": int(mode, 8) & 0o200 != 0, "text": about,
                           "default": default.group(1) if default else "0"}
    return found


def _plain(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def _page(name, section, title, version, parts):
    lines = [f'.TH {name.upper()} {section} "" "Bandsaw {version}" "Bandsaw"', ".SH NAME",
             f"{_plain(name)} \\- {title}"]
    for heading, paragraphs in parts:
        lines.append(f".SH {heading}")
        for paragraph in paragraphs:
            if isinstance(paragraph, tuple):
                lines += [".TP", f".B {_plain(paragraph[0])}", _plain(paragraph[1])]
            else:
                lines += [".PP", _plain(paragraph)]
    return "\n".join(lines) + "\n"


def _variable(name, row):
    default = f" Without it: {row['default']}." if "default" in row else ""
    return f"{name}={row['value']}", row["text"] + default


def _parameter(module, name, row):
    when = f"; changed in /sys/module/{module}/parameters/{name} while it is loaded" if row["writable"] else ""
    return f"{name}={row['default']}", f"{row['text']} ({row['type']}{when})."


PROGRAMS = ("A program that finds Bandsaw's libcuda.so.1 uses virtual GPUs: those of its VM (/dev/vgpuN), or in "
            "direct mode those of this host that BANDSAW_VGPU names. Variables of CUDA's that are not listed here have "
            "no effect.")
LIBRARIES = ("Where Debian packages put the libraries; update-alternatives --config bandsaw-libraries chooses between "
             "them and a physical GPU's.")
SOCKET = ("Direct mode: the way to a virtual GPU. In a container mount it and the folder of the libraries, and set "
          "BANDSAW_VGPU=NAME and LD_LIBRARY_PATH to that folder.")
MODULE = ("The kernel module that gives CUDA programs of a guest its virtual GPUs, as /dev/vgpu0 and so on. It is "
          "loaded when the device is found.")
CRYPTO = ("The kernel module by which the kernel itself uses a virtual GPU: xts(aes) for the crypto API, as "
          "xts-aes-vgpu, so that dm-crypt takes it. The processor does what is too small, and everything while there "
          "is no virtual GPU.")
CRYPTO_STATE = "Whether the virtual GPU is in use, and the bytes that it and the processor have done."


def generate(description):
    version = description["version"]
    libcuda = _page("bandsaw-libcuda", 7, "environment of CUDA programs on a virtual GPU", version, [
        ("DESCRIPTION", [PROGRAMS]),
        ("ENVIRONMENT", [_variable(name, row) for name, row in description["variables"].items()]),
        ("FILES", [("/usr/lib/x86_64-linux-gnu/bandsaw", LIBRARIES),
                   ("/run/bandsaw/NAME/direct.sock", SOCKET),
                   ("/dev/vgpuN", "A virtual GPU of a VM, from the module virtio_vgpu.")]),
        ("SEE ALSO", ["virtio_vgpu(4), vgpuctl(1)"])])
    parameters = {module: [_parameter(module, name, row) for name, row in rows.items()]
                  for module, rows in description["parameters"].items()}
    module = _page("virtio_vgpu", 4, "virtual GPUs in a guest", version, [
        ("DESCRIPTION", [MODULE]),
        ("PARAMETERS", parameters["virtio_vgpu"]),
        ("SEE ALSO", ["bandsaw-libcuda(7), vgpu_crypto(4), modprobe.d(5)"])])
    crypto = _page("vgpu_crypto", 4, "AES-XTS of the kernel on a virtual GPU", version, [
        ("DESCRIPTION", [CRYPTO]),
        ("PARAMETERS", parameters["vgpu_crypto"]),
        ("FILES", [("/sys/devices/vgpu_crypto/ready, gpu_bytes, cpu_bytes", CRYPTO_STATE),
                   ("/lib/firmware/bandsaw/aes_xts.ptx", "What the virtual GPU runs.")]),
        ("SEE ALSO", ["virtio_vgpu(4), modprobe.d(5), cryptsetup(8)"])])
    return [libcuda, module, crypto]
