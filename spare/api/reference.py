"""The text of docs/api-reference.md, made from the same schema as the custom resource definition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spare.api.crd import NAME, schema
from spare.api.job import API_VERSION, KIND
from spare.api.reasons import ConditionType, EventReason
from spare.api.relations import FIXED, WHILE_SUSPENDED
from spare.api.rule import MAX_JOB_NAME
from spare.api.schema import Schema


def document() -> str:
    """The whole page."""
    return "\n".join(_document()) + "\n"


def _document() -> Iterator[str]:
    whole = schema()
    yield "# API reference"
    yield ""
    yield "Made from the models in `spare/api`; a test compares the two (`make docs` writes this file). In a cluster,"
    yield f"`kubectl explain spj.spec` tells the same. `{KIND}` of `{API_VERSION}`, short `spj`, definition `{NAME}`."
    yield ""
    yield f"A name has at most {MAX_JOB_NAME} lower-case letters, digits and `-`, begins with a letter and has no dots:"
    yield "its longest pod must fit a hostname. Durations are written `500ms`, `2s`, `1m30s`. Unknown fields are"
    yield "refused."
    for path in _objects(whole["properties"]["spec"], "spec"):
        yield from _table(whole, path)
    yield ""
    yield "## What may change"
    yield ""
    yield "- Always: `runPolicy`."
    yield f"- While `runPolicy.suspend` is true: {_list(WHILE_SUSPENDED)}."
    yield f"- Never, for they decide which samples a step consists of: {_list(FIXED)}."
    yield ""
    yield "## Rules between fields"
    yield ""
    for path in ("", *_objects(whole["properties"]["spec"], "spec")):
        for rule in _at(whole, path).get("x-kubernetes-validations", []):
            if "oldSelf" not in rule["rule"]:
                yield f"- {rule.get('message') or _plain(rule['messageExpression'])}"
    for path in _objects(whole["properties"]["status"], "status"):
        yield from _table(whole, path)
    yield from _named("Conditions", ConditionType)
    yield from _named("Reasons of events and conditions", EventReason)


def _objects(place: Schema, path: str) -> Iterator[str]:
    """Paths of the mappings with fields of their own, the outer before the inner; `[]` for a list's items."""
    yield path
    for name, below in place.get("properties", {}).items():
        inner, where = (below.get("items", below), f"{path}.{name}{'[]' if 'items' in below else ''}")
        if inner.get("properties"):
            yield from _objects(inner, where)


def _at(whole: Schema, path: str) -> Schema:
    place = whole
    for part in filter(None, path.split(".")):
        place = place["properties"][part.removesuffix("[]")]
        place = place["items"] if part.endswith("[]") else place
    return place


def _table(whole: Schema, path: str) -> Iterator[str]:
    place = _at(whole, path)
    yield ""
    yield f"## {path}"
    yield ""
    yield place["description"] + (" Further fields pass through." if _open(place) else "")
    yield ""
    yield "| field | type | default | what |"
    yield "|---|---|---|---|"
    for name, field in place["properties"].items():
        default = "required" if name in place.get("required", []) else _default(field)
        yield f"| `{name}` | {_type(field)} | {default} | {field['description'].replace('|', chr(92) + '|')} |"


def _open(place: Schema) -> bool:
    return bool(place.get("x-kubernetes-preserve-unknown-fields"))


def _default(field: Schema) -> str:
    if field.get("properties") or "default" not in field:
        return ""
    value = field["default"]
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _type(field: Schema) -> str:
    if "enum" in field:
        return " / ".join(f"`{value}`" for value in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return f"{_whole(field)}, or `auto`"
    if field.get("type") == "integer":
        return _whole(field)
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}"
    if field.get("type") == "string" and (rules := field.get("x-kubernetes-validations")):
        return str(rules[0]["message"]).removeprefix("must be ")
    if field.get("format") == "date-time":
        return "time"
    return {"string": "text", "boolean": "true / false", "object": "mapping", "number": "number"}[field["type"]]


def _whole(field: Schema) -> str:
    low, high = field.get("minimum"), field.get("maximum")
    return f"whole number, {low} to {high}" if high is not None else f"whole number, at least {low}"


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _plain(expression: str) -> str:
    """A message that is put together by the API server, without the values that it puts in."""
    texts = expression.split("'")[1::2]
    return "".join(texts).replace(" ()", "").removesuffix(", but is ")


def _named(title: str, names: Any) -> Iterator[str]:
    yield ""
    yield f"## {title}"
    yield ""
    yield "| name | means |"
    yield "|---|---|"
    for each in names:
        yield f"| `{each.value}` | {each.meaning} |"
