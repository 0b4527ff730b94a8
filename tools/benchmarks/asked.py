"""A program of a bench that answers each line that it is told with a line of JSON, and says at its end how many words
of its memory are wrong."""
import json

from lab.shell import Failure
from lab.started import Started


class Asked:
    """`what`: names the program to a person. `seconds`: within which it answers."""

    def __init__(self, program: Started, what: str, seconds: float):
        self._program, self._what, self._seconds = program, what, seconds

    def tell(self, *words) -> None:
        self._program.say(*words)

    def ask(self, *words) -> dict:
        self.tell(*words)
        return self.answer(*words)

    def answer(self, *words) -> dict:
        """To what it was told: `words`."""
        line = self._program.line(self._seconds)
        if not line.startswith("{"):
            self._program.kill()
            said = self._program.finish()[1]
            raise Failure(f"{self._what} did not answer '{' '.join(map(str, words))}': {line}{said[-2000:]}")
        return json.loads(line)

    def end(self) -> int:
        """How many words are wrong."""
        wrong = self.ask("end")["wrong"]
        status, output = self._program.finish()
        if status != 0:
            raise Failure(f"{self._what} ended with {status}: {output[-2000:]}")
        return wrong

    def kill(self) -> None:
        self._program.kill()
        self._program.wait()
