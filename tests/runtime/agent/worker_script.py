"""A worker of the standard library alone: it says hello to its agent, shows what it gets, and follows its arguments.

Run as a script under `spare-agent`. What it hears is appended to the file in its first argument; each further argument
is one thing to do after hello: `say:JSON` sends a line, `fork` leaves a child behind, `exit:CODE` ends with a message
on stderr; `silent` never says hello, `deaf` ignores SIGTERM.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time


def main() -> None:
    """Speak with the agent until it hangs up."""
    heard, *orders = sys.argv[1:]
    env = os.environ
    if "deaf" in orders:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open(heard, "a", buffering=1) as shown, socket.socket(socket.AF_UNIX) as line:
        print(f"pid {os.getpid()}", file=shown)
        if "silent" in orders:
            time.sleep(600)
        line.connect("\0" + env["SPARE_AGENT"][1:])
        me = {"job": env["SPARE_JOB"], "uid": env["SPARE_UID"], "epoch": 0, "group": int(env["SPARE_GROUP"])}
        me |= {"pod": int(env.get("SPARE_POD", "0")), "rank": int(env["SPARE_RANK"])}
        names = ("SPARE_RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT", "SPARE_HOME", "SPARE_START")
        print("env", *(f"{name}={env[name]}" for name in names), file=shown)
        hello = {"kind": "hello", "protocol": 1, "pid": os.getpid(), "store": "127.0.0.1:29500"} | me
        line.sendall(json.dumps(hello | {"token": env["SPARE_TOKEN"]}).encode() + b"\n")
        for order in orders:
            what, _, argument = order.partition(":")
            if what == "say":
                line.sendall(argument.encode() + b"\n")
            elif what == "fork":
                if os.fork() == 0:
                    time.sleep(600)
            elif what == "exit":
                print("first line\nthe reason why", file=sys.stderr)  # noqa: T201
                sys.exit(int(argument))
        with line.makefile("r") as lines:
            for text in lines:
                print(text, end="", file=shown)
        print("end", file=shown)


if __name__ == "__main__":
    main()
