"""Describes a function to the model, and fits what the model sends to that description."""

import inspect
import typing
from collections.abc import Callable
from functools import partial
from typing import Any

from amas_code.events import ToolError

JSON_TYPES: dict[Any, dict] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    list[str]: {"type": "array", "items": {"type": "string"}},
}


def schema(tool: Callable) -> dict:
    """Describe a function to the model. A tool from elsewhere brings its own `schema`."""
    if hasattr(tool, "schema"):
        return tool.schema
    plain = tool.func if isinstance(tool, partial) else tool
    summary, _, notes = (inspect.getdoc(plain) or "").partition("\n\n")
    about = dict(line.split(": ", 1) for line in notes.splitlines() if ": " in line)
    hints = typing.get_type_hints(plain)
    known = {n: p for n, p in inspect.signature(plain).parameters.items() if n != "work"}
    properties = {n: JSON_TYPES[hints[n]] | {"description": about.get(n, n)} for n in known}
    required = [n for n, p in known.items() if p.default is p.empty]
    parameters = {"type": "object", "properties": properties, "required": required}
    function = {"name": plain.__name__, "description": summary, "parameters": parameters}
    return {"type": "function", "function": function}


PYTHON_TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
}


def fitted(args: dict, parameters: dict) -> dict:
    """The arguments as the schema wants them, numbers in quotes unquoted; else a ToolError."""
    if "invalid_json" in args:
        raise ToolError(f"The arguments were not one JSON object: {args['invalid_json'][:200]}")
    if "cut_off" in args:
        raise ToolError(
            "The call was cut off at your length limit and not carried out; make it shorter."
        )
    properties = parameters.get("properties", {})
    if strange := [name for name in args if properties and name not in properties]:
        raise ToolError(f"No parameter {', '.join(strange)}; there are {', '.join(properties)}.")
    if missing := [name for name in parameters.get("required", ()) if name not in args]:
        raise ToolError(f"Missing: {', '.join(missing)}.")
    return {
        name: fitted_value(name, value, properties.get(name, {})) for name, value in args.items()
    }


def fitted_value(name: str, value: Any, wanted: dict) -> Any:
    kind = wanted.get("type", "")
    python = PYTHON_TYPES.get(kind)
    if isinstance(value, str) and kind == "integer" and value.strip("+- ").isdigit():
        return int(value)
    if isinstance(value, str) and kind == "boolean" and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if isinstance(value, float) and kind == "integer" and value.is_integer():
        return int(value)
    if python and (
        not isinstance(value, python) or (kind != "boolean" and isinstance(value, bool))
    ):
        raise ToolError(f"{name} must be of type {kind}, not {type(value).__name__}.")
    if kind == "array" and wanted.get("items", {}).get("type") == "string":
        return [str(item) for item in value]
    return value
