"""How addresses and sets of group numbers are written in messages and logs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple


class Address(NamedTuple):
    """Host and port; IPv6 hosts are written in brackets (`[fd00::1]:29500`)."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read `host:port` or `[v6]:port`.

        Raises:
            ValueError: no host, no port, an IPv6 host without brackets, or a port outside 1..65535 (0 is what one asks
                the kernel for, never what one announces).
        """
        host, colon, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ValueError(f"address {text!r}: an IPv6 host is written in brackets, such as [fd00::1]:29500")
        if not colon or not host:
            raise ValueError(f"address {text!r} is not HOST:PORT")
        if not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
            raise ValueError(f"address {text!r}: the port must be 1 to 65535, not {port!r}")
        return cls(host, int(port))


_RUN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


def groups_text(groups: Iterable[int]) -> str:
    """Group numbers as short text, `0-3,5`: what a plan says of its members is a line, not a table."""
    runs: list[list[int]] = []
    for group in sorted(set(groups)):
        if runs and group == runs[-1][1] + 1:
            runs[-1][1] = group
        else:
            runs.append([group, group])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def called(groups: Collection[int]) -> str:
    """The same in a sentence: "group 3", "groups 0-3,5"."""
    return f"group{'' if len(groups) == 1 else 's'} {groups_text(groups)}"


def groups_of(text: str, groups: int | None = None) -> tuple[int, ...]:
    """The inverse of `groups_text`, ascending. Raises ValueError when the text is not of that form, or names a group
    that is not below `groups`."""
    found: list[int] = []
    for part in text.split(",") if text else []:
        match = _RUN.fullmatch(part)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if high < low or (found and low <= found[-1]):
            raise ValueError(f"group numbers {text!r} are not ascending ranges such as 0-3,5")
        if groups is not None and high >= groups:
            raise ValueError(f"group numbers {text!r} go beyond the {groups} groups of the job")
        found.extend(range(low, high + 1))
    return tuple(found)
