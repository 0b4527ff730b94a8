"""One virtual machine for all tests of what happens in a guest: it boots once, unless a test ends it."""
import pytest

from lab.cuda_programs import Program
from lab.guest_run import run_in_guest
from lab.paths import REPO
from lab.shell import Failure, wait_until
from lab.vm import Vm


@pytest.fixture(scope="session", autouse=True)
def lab(libvirt):
    """Every test here finds vgpud and libvirt running."""


class Guest:
    """The virtual machine with what tests do in it."""

    def __init__(self, vm: Vm):
        self.vm = vm

    def agent(self):
        return self.vm.agent()

    def shell(self, command: str, timeout: float = 60) -> tuple[int, str]:
        return self.agent().shell(command, timeout)

    def run(self, program: Program, seconds: float = 180) -> str:
        """What was wrong; empty if nothing was."""
        parts: list[bytes] = []
        self.vm.up()
        status = run_in_guest(self.agent(), program.compile(), program.arguments, parts.append, parts.append,
                              timeout=seconds)
        output = b"".join(parts).decode(errors="replace")
        wrong = program.judge(status, output)
        return f"{program.name}: {wrong}\n{output[-1500:]}" if wrong else ""

    def runs_programs(self) -> None:
        wrong = self.run(Program(REPO / "tests/cuda/vector_add.cu"))
        assert not wrong, wrong

    def start(self, name: str, first_words: str, *arguments: int | str, stdin: str = "/dev/null",
              log: str = "", variables: str = "") -> None:
        """A program of tests/direct in the background, until its first words are in /tmp/NAME.log, or in `log`."""
        log = log or name
        if self.shell(f"pidof {name}")[0] != 0:  # it runs: its file cannot be written
            self.agent().put(Program(REPO / f"tests/direct/{name}.cu").compile(), f"/opt/run/{name}", 0o755)
        words = " ".join(map(str, arguments))
        self.shell(f"{variables} setsid /opt/run/{name} {words} >/tmp/{log}.log 2>&1 <{stdin} &")
        wait_until(lambda: first_words in self.shell(f"cat /tmp/{log}.log")[1], 30, f"'{first_words}' of {log}")

    def busy(self, seconds: int) -> None:
        self.start("busy", "round", seconds, 4)

    def busy_log(self) -> str:
        return self.shell("tail -3 /tmp/busy.log")[1]

    def boot_id(self) -> str:
        """Of this boot of the guest: another after the next."""
        status, said = self.shell("cat /proc/sys/kernel/random/boot_id", timeout=5)
        if status != 0 or not said.strip():
            raise Failure(f"the guest has no boot id: {status} {said}")
        return said.strip()

    def kernel_is_content(self) -> None:
        log = self.shell("dmesg")[1]
        for word in ("BUG:", "Oops", "Call Trace", "WARNING:"):
            assert word not in log, f"the guest's kernel complains:\n{log[-1500:]}"


@pytest.fixture(scope="session")
def guest_of():
    """What tests do in a machine, for those that have one of their own."""
    return Guest


@pytest.fixture(scope="session")
def _vm(libvirt):
    vm = Vm("test", "test0")
    yield vm
    vm.remove()


@pytest.fixture
def guest(_vm) -> Guest:
    """It is up and answers."""
    _vm.up()
    return Guest(_vm)


@pytest.fixture(scope="module")
def two(libvirt):
    """A machine with two virtual GPUs."""
    vm = Vm("test-two", "two0", others=("two1",))
    vm.up("256M", 10)
    yield Guest(vm)
    vm.remove()
