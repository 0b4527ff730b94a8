"""A virtual GPU of a daemon's, and the programs that count on it: for tests that stop or move what runs."""
from lab.cuda_programs import Program
from lab.daemon import Daemon
from lab.host import vgpuctl
from lab.paths import REPO
from lab.shell import wait_until
from lab.started import Started


class Tenant:
    """The virtual GPU `name` of a daemon's."""
    mib = 32  # of what a program counts in

    def __init__(self, daemon: Daemon, name: str):
        self.daemon, self.name = daemon, name
        self._started: list[Started] = []

    def ctl(self, command: str, *words: str, refused: str = "") -> str:
        done = vgpuctl(command, self.name, *words, check=False, variables=self.daemon.variables)
        said = done.stdout + done.stderr
        assert done.returncode == (1 if refused else 0) and refused in said, said + self.daemon.evidence()
        return said

    def view(self) -> dict:
        return self.daemon.control.need("GET", f"/v1/vgpus/{self.name}")

    def await_another_session(self, died: int) -> None:
        """Than the one that died, which vgpud names until it has seen its end."""
        wait_until(lambda: (self.view()["live"] or {}).get("pid", died) != died, 20, "another session")

    def start(self, source: str, *words) -> Started:
        self._started.append(Started(Program(REPO / f"tests/direct/{source}").compile(), *words,
                                     variables=self.daemon.program_environment(self.name)))
        return self._started[-1]

    def kill_programs(self) -> None:
        """Those that still run."""
        for program in self._started:
            program.kill()
            program.wait()
        self._started.clear()

    def counting(self, *words, source: str = "suspend.cu") -> Started:
        """A program that counts, once it does."""
        program = self.start(source, *(words or (self.mib,)))
        program.first_line("ready")
        program.first_line("1")
        return program


def end(program: Started) -> None:
    """Of a program that counts: what it counted must be right."""
    program.say("end")
    status, output = program.finish()
    assert (status, output.endswith("ok\n")) == (0, True), f"{status}: {output[-500:]}"
