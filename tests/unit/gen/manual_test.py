"""The guest's manual pages say what its sources read, no more and no less."""

import re

import manual
from lab.paths import REPO

GUEST = REPO / "guest-driver"
DESCRIPTION = manual.load(GUEST / "uapi/calls/environment.toml", GUEST / "kernel", "1.2.3")
READ = re.compile(r"\b(?:getenv|variable)\(\"(\w+)\"\)")
NOT_OURS = {"HOME", "XDG_CACHE_HOME"}  # said with CUDA_CACHE_PATH


def sources():
    for folder in (GUEST / "libcuda", GUEST / "nvml", GUEST / "cupti", GUEST / "ptx_preload"):
        yield from folder.rglob("*.cc")
    yield REPO / "memory/base/virtual_gpus.h"


def test_each_variable_that_is_read_is_described():
    read = {name for file in sources() for name in READ.findall(file.read_text())} - NOT_OURS
    assert read == set(DESCRIPTION["variables"])


def test_pages_have_variables_and_parameters():
    libcuda, module, crypto = manual.generate(DESCRIPTION)
    assert ".B BANDSAW_VGPU=NAME" in libcuda and "Bandsaw 1.2.3" in libcuda
    assert ".B pinned_percent=75" in module and "/sys/module/virtio_vgpu" in module
    assert ".B least_bytes=4096" in crypto and "/sys/module/vgpu_crypto" in crypto and "least_bytes" not in module


def test_text_is_no_request_of_troff():
    assert manual._plain(".so /etc/passwd") == "\\&.so /etc/passwd"
    assert manual._plain("a-b\\c") == "a\\-b\\ec"
