"""Validates JSON documents against flyball's schemas: schemas.py SCHEMAS SAMPLES.

A sample NAME.N.json is an output of the schema NAME. Fields that a schema does not describe are errors here, so that the schemas stay complete; the
published ones allow them, because fields may be added. Prints a line per error and the schemas without a sample.
"""

import json
import pathlib
import sys

from jsonschema import Draft202012Validator


def closed(schema):
    """The schema with every object limited to the fields that it describes."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {key: closed(value) for key, value in schema.items()}
    # `properties` as a keyword, not as the name of a field: then its value is a map of schemas.
    if isinstance(copy.get("properties"), dict) and copy.get("type") == "object":
        copy.setdefault("additionalProperties", False)
    return copy


def main(schemas, samples):
    seen = set()
    validators = {}
    for path in sorted(pathlib.Path(schemas).glob("*.json")):
        schema = json.loads(path.read_text())
        Draft202012Validator.check_schema(schema)
        validators[path.stem] = Draft202012Validator(closed(schema))
    for path in sorted(pathlib.Path(samples).iterdir()):
        name = path.name.split(".")[0]
        document = json.loads(path.read_text())
        # An empty list shows nothing of its items.
        if document:
            seen.add(name)
        for error in list(validators[name].iter_errors(document))[:3]:
            where = "/".join(map(str, error.absolute_path))
            print(f"{path.name}: {where}: {error.message[:300]}")
    for name in sorted(set(validators) - seen):
        print(f"no sample: {name}")


main(*sys.argv[1:])
