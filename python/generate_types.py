"""Writes src/flyball/types.py from the JSON Schemas of the program: `python generate_types.py`.

With --check it compares only, and exits with 1 if they differ. The program is FLYBALL or target/debug/flyball, built with
`--features full,parquet`: only that build has every command. Of JSON Schema it knows what the schemas use, and stops at anything else.
"""

from __future__ import annotations

import json
import keyword
import os
import pathlib
import subprocess
import sys
from typing import Any, Dict, Iterator, List

HERE = pathlib.Path(__file__).parent
PROGRAM = os.environ.get("FLYBALL", HERE.parent / "target/debug/flyball")
TARGET = HERE / "src/flyball/types.py"

SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
# What constrains values without changing their type, or describes only.
WITHOUT_TYPE = {"title", "description", "default", "format", "minimum", "maximum", "minItems", "maxItems", "required"}
KNOWN = WITHOUT_TYPE | {"type", "properties", "items", "prefixItems", "const", "enum", "anyOf", "oneOf", "additionalProperties", "patternProperties", "$ref"}

HEAD = '''"""What the program prints as JSON and writes to files. Made by generate_types.py from its JSON Schemas; do not edit.

For type checkers: no module of the package imports this one at run time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Literal, TypedDict, Union

if TYPE_CHECKING:
    from typing_extensions import NotRequired
'''


def camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.replace("_", "-").split("-"))


def root(identifier: str) -> str:
    name = identifier.split("/")[0]
    return camel(name[len("file-") :]) + "File" if name.startswith("file-") else camel(name) + "Output"


def alternatives(schema: Dict[str, Any]) -> List[Dict[str, Any]]:
    found: List[Dict[str, Any]] = schema.get("anyOf") or schema.get("oneOf") or []
    return found


class Generator:
    def __init__(self) -> None:
        self.texts: Dict[str, str] = {}

    def add(self, name: str, text: str) -> str:
        if name in self.texts:
            raise SystemExit(f"two types have the name {name}")
        self.texts[name] = text
        return f'"{name}"'

    def define(self, name: str, schema: Dict[str, Any]) -> None:
        if "properties" in schema:
            self.dictionary(name, schema)
        else:
            kind = self.type(name, schema)
            # A name in quotes alone would be a string, not a type.
            self.add(name, f"{name} = Union[{kind}]" if kind.startswith('"') else f"{name} = {kind}")

    def dictionary(self, name: str, schema: Dict[str, Any]) -> str:
        """An object; one with alternatives is a type for each of them."""
        kinds = alternatives(schema)
        if not kinds:
            return self.typed_dict(name, schema)
        names = []
        for number, kind in enumerate(kinds, 1):
            properties = {**schema["properties"], **kind["properties"]}
            required = [*schema.get("required", ()), *kind.get("required", ())]
            names.append(self.typed_dict(f"{name}{number}", {**kind, "properties": properties, "required": required}))
        return self.add(name, f"{name} = {union(names)}")

    def typed_dict(self, name: str, schema: Dict[str, Any]) -> str:
        required = set(schema.get("required", ()))
        fields = {key: self.type(name + camel(key), value) for key, value in schema["properties"].items()}
        for key in set(fields) - required:
            fields[key] = f"NotRequired[{fields[key]}]"
        if any(keyword.iskeyword(key) or not key.isidentifier() for key in fields):
            # `from` cannot be a field of a class; the other form of TypedDict takes any key, and evaluates the types.
            pairs = ", ".join(f'"{key}": {json.dumps(unquoted(kind).replace(chr(34), chr(39)))}' for key, kind in fields.items())
            return self.add(name, f'{name} = TypedDict("{name}", {{{pairs}}})')
        about = schema.get("description", schema.get("title", "")).split(". ")[0].rstrip(".")
        lines = [f'    """{about}."""\n'] if about else []
        lines += [f"    {key}: {unquoted(kind)}" for key, kind in fields.items()]
        return self.add(name, f"class {name}(TypedDict):\n" + "\n".join(lines or ["    pass"]))

    def type(self, name: str, schema: Any) -> str:
        if schema is True:
            return "Any"
        unknown = set(schema) - KNOWN
        if unknown:
            raise SystemExit(f"{name}: unknown keywords {sorted(unknown)}")
        if "$ref" in schema:
            return '"' + str(schema["$ref"]).rsplit("/", 1)[1] + '"'
        if "const" in schema:
            return f"Literal[{json.dumps(schema['const'])}]"
        if "enum" in schema:
            return f"Literal[{', '.join(json.dumps(value) for value in schema['enum'])}]"
        if "properties" in schema:
            inner = self.dictionary(name, schema)
            return union([inner, "None"]) if "null" in schema.get("type", ()) else inner
        kinds = alternatives(schema)
        if kinds:
            return union([self.type(f"{name}{number}", kind) for number, kind in enumerate(kinds, 1)])
        types = schema.get("type")
        if types is None:
            return "Any"
        return union([self.plain(name, schema, kind) for kind in ([types] if isinstance(types, str) else types)])

    def plain(self, name: str, schema: Dict[str, Any], kind: str) -> str:
        if kind == "array":
            places = schema.get("prefixItems")
            if places:
                # JSON has no tuples: json.loads makes a list of them.
                return f"List[{union([self.type(f'{name}{at}', place) for at, place in enumerate(places, 1)])}]"
            return f"List[{self.type(name + 'Item', schema.get('items', True))}]"
        if kind == "object":
            # Keys that are numbers have a pattern.
            values = next(iter(schema.get("patternProperties", {}).values()), schema.get("additionalProperties", True))
            return f"Dict[str, {self.type(name + 'Value', values) if values else 'Any'}]"
        return SIMPLE[kind]


def unquoted(kind: str) -> str:
    """A type as an annotation, which is not evaluated: only the strings of Literal keep their quotes."""
    return "".join(part if part.startswith("Literal[") else part.replace('"', "") for part in literals_apart(kind))


def literals_apart(kind: str) -> Iterator[str]:
    rest = kind
    while "Literal[" in rest:
        before, rest = rest.split("Literal[", 1)
        inside, rest = rest.split("]", 1)
        yield before
        yield f"Literal[{inside}]"
    yield rest


def union(kinds: List[str]) -> str:
    words = [kind[len("Literal[") : -1] for kind in kinds if kind.startswith("Literal[")]
    different = list(dict.fromkeys(kind for kind in kinds if not kind.startswith("Literal[")))
    if words:
        different.insert(0, f"Literal[{', '.join(words)}]")
    return different[0] if len(different) == 1 else f"Union[{', '.join(different)}]"


def generate() -> str:
    printed = subprocess.run([PROGRAM, "schema", "--all"], check=True, capture_output=True, text=True).stdout
    everything = json.loads(printed)
    generator = Generator()
    for name, schema in everything["$defs"].items():
        generator.define(name, schema)
    for identifier, schema in everything["properties"].items():
        generator.define(root(identifier), schema)
    return HEAD + "".join(f"\n\n{text}\n" for text in generator.texts.values())


if __name__ == "__main__":
    text = generate()
    if "--check" in sys.argv:
        sys.exit(0 if TARGET.read_text() == text else "src/flyball/types.py is not up to date: python generate_types.py")
    TARGET.write_text(text)
