"""From the models to a structural schema, the subset of OpenAPI v3 that a CustomResourceDefinition may hold.

Pydantic gives JSON Schema; here its references are written out and what Kubernetes words differently is translated:

| the models say | Kubernetes wants |
|---|---|
| `X or None` | X, not required: nulls are dropped before validation |
| unknown fields forbidden | nothing: strict field validation, kubectl's default, refuses them |
| unknown fields kept | `x-kubernetes-preserve-unknown-fields` |
| a nested default | the inner defaults, written out |
| a relation between fields | a CEL rule, from `spare.api.relations` |
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, get_args

from pydantic import BaseModel

from spare.api.relations import rules_of
from spare.api.rule import Rule

Schema = dict[str, Any]

_KEPT: Final = (
    *("description", "type", "anyOf", "enum", "format", "pattern"),
    *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
)
_OURS: Final = "x-kubernetes-"


def structural(model: type[BaseModel], *, defaults: bool = True) -> Schema:
    """The structural schema of one model, with the models inside it written out.

    Args:
        model: what to describe.
        defaults: whether the API server fills in what is left out; not in a status, whose writer says everything.
    """
    document = model.model_json_schema(by_alias=True, mode="validation")
    return _Translation(document.get("$defs", {}), _models_by_name(model), defaults).object(document, model)


class _Translation:
    def __init__(self, definitions: dict[str, Schema], models: dict[str, type[BaseModel]], defaults: bool) -> None:
        self._definitions = definitions
        self._models = models
        self._defaults = defaults

    def object(self, document: Schema, model: type[BaseModel]) -> Schema:
        """One model's object."""
        result: Schema = {"description": _sentence(document.get("description", "")), "type": "object"}
        if required := document.get("required"):
            result["required"] = sorted(required)
        result["properties"] = {name: self.field(field) for name, field in document["properties"].items()}
        if model.model_config.get("extra") == "allow":  # the pod template: what is left out there stays out
            result["x-kubernetes-preserve-unknown-fields"] = True
        elif self._defaults:
            for name, default in _defaults(model).items():
                result["properties"][name]["default"] = default
        if rules := rules_of(model):
            result["x-kubernetes-validations"] = rules
        return result

    def field(self, field: Schema) -> Schema:
        """One field of a model, or one item of a list."""
        inner = _without_null(field)
        if "$ref" in inner:
            name = inner["$ref"].rpartition("/")[2]
            result = self._definition(name)
        elif inner.get("type") == "array":
            result = {**_kept(inner), "items": self.field(inner["items"])}
            result.setdefault("x-kubernetes-list-type", "atomic")
        elif inner.get("type") == "object":
            result = _kept(inner) | _mapping(inner)
        else:
            result = _kept(inner)
        if "const" in inner:
            result["enum"] = [inner["const"]]
        if description := field.get("description"):
            result["description"] = description
        return result

    def _definition(self, name: str) -> Schema:
        definition = self._definitions[name]
        if "properties" in definition:
            return self.object(definition, self._models[name])
        return _kept(definition)  # an enum; the field describes its choices


def _defaults(model: type[BaseModel]) -> Schema:
    """What is filled in for the fields of a model, as it would stand in the file."""
    found: Schema = {}
    for name, info in model.model_fields.items():
        default = info.get_default()
        if isinstance(default, BaseModel):
            default = _defaults(type(default))  # written out: the API server checks it against the rules inside
        rule = next((each for each in info.metadata if isinstance(each, Rule)), None)
        if not info.is_required() and default is not None:
            found[info.alias or name] = rule.write(default) if rule else _plain(default)
    return found


def _plain(value: object) -> object:
    return value.value if isinstance(value, Enum) else value


def _kept(schema: Schema) -> Schema:
    ours = {key: value for key, value in schema.items() if key.startswith(_OURS)}
    return {key: schema[key] for key in _KEPT if key in schema} | ours


def _mapping(schema: Schema) -> Schema:
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        return {"additionalProperties": _kept(values)}
    return {"x-kubernetes-preserve-unknown-fields": True}


def _without_null(field: Schema) -> Schema:
    """A field that may be None, as what it is otherwise."""
    choices = [choice for choice in field.get("anyOf", []) if choice != {"type": "null"}]
    if len(choices) == 1:
        return {**{key: value for key, value in field.items() if key != "anyOf"}, **choices[0]}
    return field


def _models_by_name(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    found: dict[str, type[BaseModel]] = {}

    def walk(each: type[BaseModel]) -> None:
        if each.__name__ in found:
            return
        found[each.__name__] = each
        for info in each.model_fields.values():
            for inner in _inside(info.annotation):
                walk(inner)

    walk(model)
    return found


def _inside(annotation: Any) -> list[type[BaseModel]]:
    """The models that an annotation is made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _inside(inner)]


def _sentence(docstring: str) -> str:
    """A docstring as one line."""
    return " ".join(docstring.split())
