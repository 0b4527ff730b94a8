"""Takes a part of a processor in short turns, as a server does that answers many small requests, and nothing else:
as_busy.py SECONDS PERCENT."""
import sys
import time

TURN_S = 0.001


def main(seconds: float, percent: float) -> None:
    end = time.monotonic() + seconds
    owed, last = 0.0, time.monotonic()
    while last < end:
        now = time.monotonic()
        owed += (now - last) * percent / 100  # what a busy machine did not give is asked for again
        last = now
        begin = time.process_time()
        while time.process_time() - begin < owed:
            pass
        owed -= time.process_time() - begin
        time.sleep(TURN_S)


main(float(sys.argv[1]), float(sys.argv[2]))
