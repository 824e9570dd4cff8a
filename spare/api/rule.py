"""Field types of the job file that pydantic lacks: each knows what it allows, in words and as a schema."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from spare.api.duration import LONGEST_TEXT, PATTERN, format_duration, parse_duration

AUTO = "auto"

MAX_CHILD_NAME = 63
"""Kubernetes' limit for the name of a Service or for a hostname, and pods are given their name as hostname."""
CHILD_SUFFIX = "-g999-p15-xxxxx"
"""What the longest name of a pod adds to the job's: group, pod, and five characters that differ at each attempt."""
MAX_JOB_NAME = MAX_CHILD_NAME - len(CHILD_SUFFIX)


@dataclass(frozen=True)
class Rule:
    """Goes into `Annotated[type, Rule(...)]`; pydantic calls `parse`, error messages quote `allowed`."""

    allowed: str
    """What may stand there, as a noun phrase."""
    parse: Callable[[object], object]
    """Value as it stands in the file, or as the Python type, to the Python type. Raises ValueError; its text, if
    any, is added to the message as a hint."""
    schema: dict[str, object]
    """The same rule as an OpenAPI schema, for the custom resource."""
    write: Callable[[Any], object] = lambda value: value
    """Back to how it stands in the file."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        write = core_schema.plain_serializer_function_ser_schema(self.write)
        return core_schema.no_info_plain_validator_function(self.parse, serialization=write)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return dict(self.schema)


def duration(shortest: str, longest: str, *, or_auto: bool = False) -> Rule:
    """A `timedelta` within bounds, both included; with `or_auto` also the word auto."""
    low, high = parse_duration(shortest), parse_duration(longest)

    def parse(value: object) -> timedelta | str:
        if or_auto and value == AUTO:
            return AUTO
        if isinstance(value, bool) or not isinstance(value, str | int | float | timedelta):
            raise ValueError
        parsed = value if isinstance(value, timedelta) else parse_duration(str(value))
        if not low <= parsed <= high:
            raise ValueError
        return parsed

    def write(value: timedelta | str) -> str:
        return value if isinstance(value, str) else format_duration(value)

    allowed = f"a duration from {shortest} to {longest}"
    bounds = f"duration(self) >= duration('{shortest}') && duration(self) <= duration('{longest}')"
    if or_auto:
        allowed, bounds = f"auto or {allowed}", f"self == '{AUTO}' || ({bounds})"
    schema: dict[str, object] = {
        "type": "string",
        "pattern": f"^({AUTO}|{PATTERN[1:-1]})$" if or_auto else PATTERN,
        "maxLength": LONGEST_TEXT,
        "x-kubernetes-validations": [{"rule": bounds, "message": f"must be {allowed}"}],
    }
    return Rule(allowed, parse, schema, write)


def count_or_auto(low: int, high: int) -> Rule:
    """A whole number within bounds, both included, or the word auto."""

    def parse(value: object) -> int | str:
        if value == AUTO:
            return AUTO
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError
        return value

    schema: dict[str, object] = {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
        "minimum": low,
        "maximum": high,
        "pattern": "^auto$",
    }
    return Rule(f"auto or a whole number from {low} to {high}", parse, schema)


def text(allowed: str, pattern: str, longest: int) -> Rule:
    """Text of a given form and greatest length."""
    form = re.compile(pattern)

    def parse(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError(unquoted(value))
        if len(value) > longest or not form.fullmatch(value):
            raise ValueError(f"it has {len(value)} characters" if len(value) > longest else "")
        return value

    return Rule(allowed, parse, {"type": "string", "pattern": pattern, "maxLength": longest})


def unquoted(value: object) -> str:
    """A hint for the commonest slip in YAML: `no`, `1.10` or `0123` meant as text."""
    return "put it in quotes" if isinstance(value, bool | int | float) else ""


JOB_NAME = text(
    f"a name of at most {MAX_JOB_NAME} lower-case letters, digits and '-', without dots, that starts with a letter and"
    f" ends with a letter or digit (its longest pod, NAME{CHILD_SUFFIX}, may have {MAX_CHILD_NAME} characters)",
    r"^[a-z]([-a-z0-9]*[a-z0-9])?$",
    MAX_JOB_NAME,
)
NAMESPACE = text(
    "a name of at most 63 lower-case letters, digits and '-', without dots, between letters or digits",
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
    63,
)
LABEL_KEY = text(
    "a node label such as topology.kubernetes.io/zone",
    r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
    316,
)
ENV_NAME = text("a variable name without '='", r"^[^=\x00]+$", 1024)
