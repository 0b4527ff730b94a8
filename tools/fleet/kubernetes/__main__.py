"""bandsaw-kubernetes: gives pods of this node virtual GPUs."""
import argparse
import logging
import pathlib
import signal
import sys
import threading

from fleet.kubernetes import settings

CONFIG = "/etc/bandsaw/kubernetes.toml"


def _device_plugin(chosen: settings.Settings, options: argparse.Namespace, stop: threading.Event) -> None:
    from fleet.kubernetes.device_agent import Agent
    if not chosen.profiles:
        raise settings.Wrong("there is no [profiles.NAME]: pods could ask for nothing")
    agent = Agent(chosen)
    agent.stop = stop
    agent.run()


COMMANDS = {"device-plugin": _device_plugin}


def main() -> int:
    parser = argparse.ArgumentParser(prog="bandsaw-kubernetes", description=__doc__)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--config", type=pathlib.Path, default=CONFIG, help=f"instead of {CONFIG}")
    options = parser.parse_args()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        COMMANDS[options.command](settings.read(options.config), options, stop)
    except settings.Wrong as wrong:
        print(f"bandsaw-kubernetes: {options.config}: {wrong}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"bandsaw-kubernetes: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
