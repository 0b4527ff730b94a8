"""A program that counts in a guest, for tests of what moves or stops its virtual GPU."""
from lab.shell import wait_until

SECONDS = 30


class Counting:
    """A program of tests/direct that prints numbers, until it is told to end. `guest` may become another's."""

    def __init__(self, guest, name: str, *words: str | int, source: str = "save_all", variables: str = ""):
        self.guest, self._name, self._told = guest, name, f"/tmp/told-{name}"
        guest.shell(f"rm -f {self._told}; mkfifo {self._told}; setsid sleep 900 >{self._told} 2>/dev/null </dev/null &")
        guest.start(source, "\n2", *words, stdin=self._told, log=name, variables=variables)
        self._pid = max(map(int, guest.shell(f"pidof {source}")[1].split()))

    def last_line(self) -> str:
        return self.guest.shell(f"tail -1 /tmp/{self._name}.log")[1].strip()

    def rounds(self) -> int:
        return int(self.last_line())

    def goes_on(self) -> None:
        before = self.rounds()
        wait_until(lambda: self.rounds() > before + 3, SECONDS, f"the next rounds of {self._name}")

    def kill(self) -> None:
        self.guest.shell(f"kill -9 {self._pid}")
        wait_until(lambda: self.guest.shell(f"kill -0 {self._pid}")[0] != 0, SECONDS, f"the end of {self._name}")

    def finish(self) -> None:
        self.guest.shell(f"echo >{self._told}")
        wait_until(lambda: self.last_line() == "ok", SECONDS, f"the end of {self._name}")
