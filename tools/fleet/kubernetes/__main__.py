"""bandsaw-kubernetes: gives pods of this node virtual GPUs."""
import argparse
import logging
import os
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


def _dra(chosen: settings.Settings, options: argparse.Namespace, stop: threading.Event) -> None:
    from fleet.kubernetes.api_server import ApiServer
    from fleet.kubernetes.dra_agent import Agent
    if not options.node:
        raise OSError("which node this is was not said: give --node, or NODE_NAME in the environment")
    agent = Agent(chosen, ApiServer(options.api_server), options.node)
    agent.stop = stop
    agent.run()


COMMANDS = {"device-plugin": _device_plugin, "dra-driver": _dra}


def main() -> int:
    parser = argparse.ArgumentParser(prog="bandsaw-kubernetes", description=__doc__)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--config", type=pathlib.Path, default=CONFIG, help=f"instead of {CONFIG}")
    parser.add_argument("--node", default=os.environ.get("NODE_NAME", ""), help="this node's name in the cluster "
                        "(default: NODE_NAME); for dra-driver")
    parser.add_argument("--api-server", default="", metavar="URL", help="instead of the one that pods find; for "
                        "dra-driver")
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
