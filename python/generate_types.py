"""Writes src/flyball/types.py from the JSON Schemas of the program: `python generate_types.py`.

With --check it compares only, and exits with 1 if they differ. Of JSON Schema it knows what the schemas use, and stops at anything else.
"""

from __future__ import annotations

import json
import keyword
import pathlib
import sys
from typing import Any, Dict, List, Tuple

HERE = pathlib.Path(__file__).parent
# Those of the program, and those of `flyball guest`.
SCHEMAS = [HERE.parent / "crates/flyball/schemas", HERE.parent / "lab/crates/flyball-guest-cli/schemas"]
TARGET = HERE / "src/flyball/types.py"

SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
# What constrains values without changing their type, or describes only.
WITHOUT_TYPE = {"$schema", "$id", "title", "description", "minItems", "maxItems", "$defs", "required", "prefixItems"}
KNOWN = WITHOUT_TYPE | {"type", "properties", "items", "const", "enum", "anyOf", "additionalProperties", "$ref"}

HEAD = '''"""What the program prints as JSON and writes to files. Made by generate_types.py from its JSON Schemas; do not edit.

For type checkers: no module of the package imports this one at run time.
"""

from __future__ import annotations

from typing import Any, Dict, List, Literal, TypedDict, Union
'''


def camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.replace("_", "-").split("-"))


class Generator:
    def __init__(self) -> None:
        self.classes: Dict[str, str] = {}
        self.names: Dict[str, str] = {}

    def add(self, name: str, text: str) -> str:
        if self.classes.setdefault(name, text) != text:
            raise SystemExit(f"two types have the name {name}")
        return name

    def document(self, name: str, schema: Dict[str, Any], shared: Dict[str, bool]) -> None:
        root = camel(name[len("file-") :]) + "File" if name.startswith("file-") else camel(name) + "Output"
        # A definition that differs between schemas gets the name of its schema in front.
        self.names = {key: key if shared[key] else camel(name) + key for key in schema.get("$defs", {})}
        for key, definition in schema.get("$defs", {}).items():
            self.define(self.names[key], definition)
        self.define(root, schema)

    def define(self, name: str, schema: Dict[str, Any]) -> None:
        if "properties" in schema:
            self.typed_dict(name, schema)
        else:
            kind = self.type(name, schema)
            # A name in quotes alone would be a string, not a type.
            self.add(name, f"{name} = Union[{kind}]" if kind.startswith('"') else f"{name} = {kind}")

    def typed_dict(self, name: str, schema: Dict[str, Any]) -> str:
        required = set(schema.get("required", ()))
        if any(keyword.iskeyword(key) for key in schema["properties"]):
            # `from` cannot be a field of a class; the other form of TypedDict takes any key, all of them required or none.
            fields = (f'"{key}": {self.type(name + camel(key), value)}' for key, value in schema["properties"].items())
            total = "" if required >= set(schema["properties"]) else ", total=False"
            return self.add(name, f'{name} = TypedDict("{name}", {{{", ".join(fields)}}}{total})')
        parts: Tuple[List[str], List[str]] = ([], [])
        for key, value in schema["properties"].items():
            if not key.isidentifier():
                raise SystemExit(f"{name}: '{key}' is not an identifier")
            parts[key not in required].append(f"    {key}: {self.type(name + camel(key), value, quoted=False)}")
        always, sometimes = parts
        about = schema.get("description", schema.get("title", "")).split(". ")[0].rstrip(".")
        text = f'    """{about}."""\n\n' if about else ""
        if sometimes and always:
            # NotRequired is in typing since Python 3.11 only.
            base = self.add(f"{name}Required", f"class {name}Required(TypedDict):\n" + "\n".join(always))
            return self.add(name, f"class {name}({base}, total=False):\n{text}" + "\n".join(sometimes))
        total = ", total=False" if sometimes else ""
        return self.add(name, f"class {name}(TypedDict{total}):\n{text}" + "\n".join(always + sometimes or ["    pass"]))

    def type(self, name: str, schema: Dict[str, Any], quoted: bool = True) -> str:
        unknown = set(schema) - KNOWN
        if unknown:
            raise SystemExit(f"{name}: unknown keywords {sorted(unknown)}")
        if "$ref" in schema:
            reference = self.names[schema["$ref"].rsplit("/", 1)[1]]
            return f'"{reference}"' if quoted else reference
        if "const" in schema:
            return f"Literal[{json.dumps(schema['const'])}]"
        if "enum" in schema:
            return f"Literal[{', '.join(json.dumps(value) for value in schema['enum'])}]"
        if "anyOf" in schema:
            kinds = [self.type(f"{name}{number}", kind, quoted) for number, kind in enumerate(schema["anyOf"], 1)]
            return union(kinds)
        if "properties" in schema:
            inner = self.typed_dict(name, schema)
            kinds = [f'"{inner}"' if quoted else inner]
            return union(kinds + ["None"]) if "null" in schema.get("type", ()) else kinds[0]
        types = schema.get("type")
        if types is None:
            return "Any"
        return union([self.plain(name, schema, kind, quoted) for kind in ([types] if isinstance(types, str) else types)])

    def plain(self, name: str, schema: Dict[str, Any], kind: str, quoted: bool) -> str:
        if kind == "array":
            places = schema.get("prefixItems")
            if places:
                # JSON has no tuples: json.loads makes a list of them.
                return f"List[{union([self.type(f'{name}{at}', place, quoted) for at, place in enumerate(places, 1)])}]"
            return f"List[{self.type(name + 'Item', schema.get('items', {}), quoted)}]"
        if kind == "object":
            values = schema.get("additionalProperties", {})
            return f"Dict[str, {self.type(name + 'Value', values, quoted) if values else 'Any'}]"
        return SIMPLE[kind]


def union(kinds: List[str]) -> str:
    different = list(dict.fromkeys(kinds))
    return different[0] if len(different) == 1 else f"Union[{', '.join(different)}]"


def generate() -> str:
    files = sorted((path for folder in SCHEMAS for path in folder.glob("*.json")), key=lambda path: path.name)
    schemas = {path.stem: json.loads(path.read_text()) for path in files}
    texts: Dict[str, set[str]] = {}
    for schema in schemas.values():
        for key, definition in schema.get("$defs", {}).items():
            texts.setdefault(key, set()).add(json.dumps(definition, sort_keys=True))
    # Two equal definitions may refer to others that differ, and are then two types as well.
    different = {key for key, found in texts.items() if len(found) > 1}
    while True:
        more = {
            key
            for key, found in texts.items()
            if key not in different and any(f'"#/$defs/{other}"' in text for text in found for other in different)
        }
        if not more:
            break
        different |= more
    shared = {key: key not in different for key in texts}
    generator = Generator()
    for name, schema in schemas.items():
        generator.document(name, schema, shared)
    return HEAD + "".join(f"\n\n{text}\n" for text in generator.classes.values())


if __name__ == "__main__":
    text = generate()
    if "--check" in sys.argv:
        sys.exit(0 if TARGET.read_text() == text else "src/flyball/types.py is not up to date: python generate_types.py")
    TARGET.write_text(text)
