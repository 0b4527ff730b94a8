"""Virtual GPUs that are saved with all that their programs have: their runners end, and new ones follow them."""
import os
import pathlib
import signal
import time

import pytest

from lab.daemon import Daemon
from lab.host import built
from lab.shell import wait_until
from lab.started import Started
from tenant import Tenant, end

DEVICES: list = [{"name": "soft:0", "memory": "512M", "sms": 4}]
MIB = 16
# What cannot go to another runner on a GPU, and by which words that is refused.
ON_A_GPU = {"pool": "memory of a pool", "array": "an array", "managed": "managed", "heap": "managed variables",
            "memory": "memory of graphs", "conditional": "conditional nodes"}


@pytest.fixture(name="tenant", scope="module")
def _tenant(device):
    daemon = Daemon(device, "band+", name="saveall", devices=DEVICES if device == "soft" else [device],
                    tables={"swap": {"memory": "4G" if device == "soft" else "12G"}, "save": {"on_gpus": True}})
    daemon.create("sleeper", 50, memory="384M" if device == "soft" else "8G")
    try:
        yield Tenant(daemon, "sleeper")
    finally:
        daemon.end()


def _counting(tenant: Tenant, *words):
    return tenant.counting(MIB, *words, source="save_all.cu")


def _processes(tenant: Tenant) -> list:
    return tenant.view()["live"]["processes"]


def _runners(tenant: Tenant) -> list:
    return [process["runner"] for process in _processes(tenant) if "runner" in process]


def _save(tenant: Tenant, file: pathlib.Path) -> None:
    tenant.ctl("save", str(file), "--all")
    wait_until(lambda: not _runners(tenant), 10, "the end of its runners")
    assert tenant.view()["live"]["suspension"]["saved"]


def test_programs_count_on_in_new_runners(tenant, file):
    programs = [_counting(tenant) for _ in range(2)]
    before = _runners(tenant)
    _save(tenant, file)
    assert [process["state"] for process in _processes(tenant)] == ["away", "away"]
    tenant.ctl("resume", refused="is in a file")
    tenant.ctl("restore", str(file))
    after = _runners(tenant)
    assert len(after) == 2 and not set(after) & set(before)
    for program in programs:
        assert program.line(10)
    _save(tenant, file)  # what was made again can be saved again
    tenant.ctl("restore", str(file))
    for program in programs:
        assert program.line(10)
        end(program)


def _refused_on_a_gpu(device: str, tenant: Tenant, file: pathlib.Path, program: Started, kind: str) -> bool:
    words = ON_A_GPU.get(kind, "") if device != "soft" else ""
    if words:
        tenant.ctl("save", str(file), "--all", refused=words)
        assert program.line(10) and not file.exists()
        end(program)
    return bool(words)


@pytest.mark.parametrize("extra", ["pool", "graph", "array"])
def test_what_programs_have_beside_memory_goes_along(device, tenant, file, extra):
    program = _counting(tenant, extra)
    if _refused_on_a_gpu(device, tenant, file, program, extra):
        return
    for _ in range(2):  # what was made again can be saved again
        _save(tenant, file)
        tenant.ctl("restore", str(file))
        assert program.line(10) and program.line(10)
    end(program)


@pytest.mark.parametrize(("source", "kind"),
                         [("memory", "managed"), ("mapped", "host"), ("mapped", "mapped"), ("memory", "heap"),
                          ("graphs", "memory"), ("graphs", "conditional"), ("graphs", "copy")])
def test_memory_and_graphs_of_all_kinds_go_along(device, tenant, file, source, kind):
    program = tenant.counting(kind, source=f"save_{source}.cu")
    if _refused_on_a_gpu(device, tenant, file, program, kind):
        return
    for _ in range(2):
        _save(tenant, file)
        tenant.ctl("restore", str(file))
        assert program.line(10) and program.line(10)
    end(program)


@pytest.mark.parametrize(("extra", "words"), [("captured", "being captured"), ("gone", "a pool that has gone"),
                                              ("texture", "a texture of memory")])
def test_what_cannot_be_saved_is_refused_by_name(device, tenant, file, extra, words):
    if device != "soft":
        words = {"gone": "memory of a pool", "texture": "a texture on a GPU"}.get(extra, words)
    program = _counting(tenant, extra)
    runners = _runners(tenant)
    tenant.ctl("save", str(file), "--all", refused=words)
    assert program.line(10) and not file.exists() and _runners(tenant) == runners
    tenant.ctl("save", str(file))  # its memory alone
    tenant.ctl("restore", str(file))
    end(program)


def _needs_contexts_in_place(device: str) -> None:
    if device != "soft":
        pytest.skip("on a GPU a save without --all cannot ask what programs have: no runner follows one that ends")


def test_a_runner_that_is_killed_after_a_save_is_followed_by_another(device, tenant, file):
    _needs_contexts_in_place(device)
    program, other = _counting(tenant), _counting(tenant)
    tenant.ctl("save", str(file))
    killed, kept = _runners(tenant)
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: _runners(tenant) == [kept], 10, "the end of a runner")
    tenant.ctl("restore", str(file))
    assert kept in _runners(tenant) and len(_runners(tenant)) == 2
    end(program)
    end(other)


def _begin(tenant: Tenant, runner: int, *words: str) -> Started:
    """A command of vgpuctl's for the virtual GPU that waits for this runner."""
    os.kill(runner, signal.SIGSTOP)
    begun = Started(built("tools/vgpuctl/vgpuctl"), words[0], tenant.name, *words[1:],
                    variables={**os.environ, **tenant.daemon.variables})
    time.sleep(0.5)
    assert begun.poll() is None
    return begun


def test_a_runner_killed_in_the_middle_of_a_save_ends_its_own_program_only(device, tenant, file):
    _needs_contexts_in_place(device)
    program, other = _counting(tenant), _counting(tenant)
    tenant.ctl("suspend")
    killed, kept = _runners(tenant)
    saving = _begin(tenant, killed, "save", str(file), "--all")
    os.kill(killed, signal.SIGKILL)
    status, said = saving.finish(20)
    assert status == 1 and "stays suspended" in said and not file.exists(), said
    tenant.ctl("resume")
    assert _runners(tenant) == [kept] and other.line(10)
    status, output = program.finish(20)
    assert status == 3 and "cudaErrorDevicesUnavailable" in output, output[-300:]
    end(other)


def test_a_runner_killed_in_the_middle_of_a_restore_is_followed_by_another(device, tenant, file):
    _needs_contexts_in_place(device)
    program, other = _counting(tenant), _counting(tenant)
    tenant.ctl("save", str(file))
    killed, kept = _runners(tenant)
    restoring = _begin(tenant, killed, "restore", str(file))
    os.kill(killed, signal.SIGKILL)
    status, said = restoring.finish(20)
    assert status == 1 and "is not restored" in said, said
    wait_until(lambda: _runners(tenant) == [kept], 10, "the end of a runner")
    tenant.ctl("restore", str(file))
    assert program.line(10) and other.line(10)
    end(program)
    end(other)


def test_a_damaged_file_changes_nothing_and_the_right_one_works(tenant, file, tmp_path):
    program = _counting(tenant)
    _save(tenant, file)
    whole, bad = file.read_bytes(), tmp_path / "bad"
    for content, words in ((whole[:len(whole) // 2], "cut off"), (whole[:-1] + bytes([whole[-1] ^ 1]), "altered"),
                           (whole[:12] + b"\1" + whole[13:], "version 1")):
        bad.write_bytes(content)
        tenant.ctl("restore", str(bad), refused=words)
        assert not _runners(tenant)
    tenant.ctl("restore", str(file))
    end(program)


def test_where_new_runners_have_no_room_all_stays_in_the_file(device, tenant, file):
    program = _counting(tenant)
    _save(tenant, file)
    tenant.ctl("set", "--memory", "16M")
    tenant.ctl("restore", str(file), refused="is not restored")
    wait_until(lambda: not _runners(tenant), 10, "the end of the new runner")
    assert tenant.view()["live"]["suspension"]["saved"]
    tenant.ctl("set", "--memory", "384M" if device == "soft" else "8G")
    tenant.ctl("restore", str(file))
    end(program)


def test_a_program_that_ends_meanwhile_needs_nothing(tenant, file):
    program, other = _counting(tenant), _counting(tenant)
    _save(tenant, file)
    program.kill()
    program.wait()
    wait_until(lambda: len(_processes(tenant)) == 1, 10, "the end of its process")
    tenant.ctl("restore", str(file))
    end(other)


@pytest.mark.parametrize("back", [["resume"], ["restore", "FILE"]])
def test_once_all_have_ended_nothing_is_needed(tenant, file, back):
    program = _counting(tenant)
    _save(tenant, file)
    program.kill()
    program.wait()
    wait_until(lambda: not _processes(tenant), 10, "the end of its process")
    tenant.ctl(*(str(file) if word == "FILE" else word for word in back))
    end(_counting(tenant))
