"""Validates JSON documents against flyball's schemas: schemas.py ALL SAMPLES.

ALL is what `flyball schema --all` prints. A sample NAME.N.json is an output of the schema NAME. Fields that a schema does not describe are errors here, so that the schemas stay complete; the
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
    is_object = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    # What an object and each of its alternatives describe counts together.
    together = {"anyOf", "oneOf", "allOf"} if is_object else set()
    copy = {key: value if key in together else closed(value) for key, value in schema.items()}
    # `properties` as a keyword, not as the name of a field: then its value is a map of schemas.
    if is_object and "additionalProperties" not in schema:
        copy["unevaluatedProperties"] = False
    return copy


def main(schemas, samples):
    seen = set()
    validators = {}
    everything = json.loads(pathlib.Path(schemas).read_text())
    Draft202012Validator.check_schema(everything)
    definitions = closed(everything["$defs"])
    for name, schema in everything["properties"].items():
        validators[name.split("/")[0]] = Draft202012Validator({**closed(schema), "$defs": definitions})
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
