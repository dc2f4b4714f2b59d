#!/usr/bin/env python3
"""server/native/openapi.json is true: it has every route of server/http/routes.inc and no other, with the same summary; every field of a
request that it names is read by the code, every reference leads somewhere, and errors have the shape of the route's API.
No server is started; test_schemathesis.py asks one."""
import glob
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from harness import SOURCE, check, equal, main  # noqa: E402

SERVER = os.path.join(SOURCE, "server")
ROUTE = re.compile(r'^ROUTE\("(\w+)", "([^"]+)", \w+, SRV_(\w+), (OPEN|KEY),\s*"([^"]*)"\)', re.M)


def text_of(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


SPEC = json.loads(text_of(os.path.join(SERVER, "native", "openapi.json")))
ROUTES = ROUTE.findall(text_of(os.path.join(SERVER, "http", "routes.inc")))


def operations():
    for path, methods in SPEC["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def resolve(schema):
    while "$ref" in schema:
        at = SPEC
        for step in schema["$ref"].split("/")[1:]:
            at = at[step]
        schema = at
    return schema


def walk(value):
    yield value
    for v in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from walk(v)


def request_fields(schema, seen):
    """Names of all properties that a request may have, at any depth."""
    schema = resolve(schema)
    if id(schema) in seen:
        return
    seen.add(id(schema))
    for name, inner in schema.get("properties", {}).items():
        yield name
        yield from request_fields(inner, seen)
    for inner in schema.get("anyOf", []) + [schema[k] for k in ("items",) if isinstance(schema.get(k), dict)]:
        yield from request_fields(inner, seen)


def test_every_route_is_described_and_every_description_is_a_route():
    check(len(ROUTES) > 20, f"routes.inc was not understood: {len(ROUTES)} rows")
    described = {(m, p) for m, p, _ in operations()}
    rows = {(m, p) for m, p, *_ in ROUTES}
    equal(sorted(rows - described), [], "routes that openapi.json does not have")
    equal(sorted(described - rows), [], "paths of openapi.json that are no routes")


def test_summaries_and_access_are_those_of_the_routes():
    rows = {(m, p): (api, access, summary) for m, p, api, access, summary in ROUTES}
    for method, path, operation in operations():
        api, access, summary = rows[method, path]
        equal(operation["summary"], summary, f"{method} {path}: summary")
        equal(operation["tags"], [api.lower()], f"{method} {path}: tag")
        equal("security" in operation, access == "OPEN", f"{method} {path}: needs no key")
        equal(operation["responses"]["4XX"]["$ref"].split("/")[-1], api.lower() + "_refused", f"{method} {path}: shape of errors")


def test_every_reference_leads_somewhere_and_every_schema_is_used():
    used = set()
    for value in walk(SPEC):
        if isinstance(value, dict) and isinstance(value.get("$ref"), str):
            resolve(value)
            used.add(value["$ref"].split("/")[-1])
    equal(sorted(set(SPEC["components"]["schemas"]) - used), [], "schemas that nothing uses")


def test_every_field_of_a_request_is_read_by_the_code():
    code = "".join(text_of(f) for pattern in ("*.c", "*.h", "*.inc") for f in glob.glob(os.path.join(SERVER, "*", pattern)))
    for method, path, operation in operations():
        for media in operation.get("requestBody", {}).get("content", {}).values():
            for name in request_fields(media["schema"], set()):
                check(f'"{name}"' in code, f"{method} {path}: no code reads the field {name}")


def test_bounds_are_those_of_the_code():
    rows = re.findall(r'^NUMBER\("(\w+)", \w+, ([-\d.]+), ([-\d.]+)\)', text_of(os.path.join(SERVER, "ask", "sampling_fields.inc")), re.M)
    check(len(rows) > 5, f"sampling_fields.inc was not understood: {rows}")
    schemas = SPEC["components"]["schemas"]
    for name, least, most in rows:
        for schema in ("ChatRequest", "CompletionRequest", "InferenceRequest", "InferenceStreamRequest"):
            field = schemas[schema]["properties"].get(name)
            if field:
                equal((field["minimum"], field["maximum"]), (float(least), float(most)), f"{schema}.{name}: bounds")
        check("minimum" not in schemas["OllamaOptions"]["properties"].get(name, {}), f"OllamaOptions.{name} has no bounds: the nearest value counts")


def test_streams_and_refusals_are_described():
    for method, path, operation in operations():
        responses = operation["responses"]
        if method == "POST":
            check("503" in responses and "4XX" in responses, f"{method} {path}: has {sorted(responses)}")
        for status, response in responses.items():
            check(resolve(response).get("description"), f"{method} {path} {status}: no description")


def test_variables_that_the_docs_call_working_are_options():
    """docs/SERVER.md has a table of variables that other servers read: `work` or `left out`."""
    options, docs = text_of(os.path.join(SOURCE, "cli", "options.inc")), text_of(os.path.join(SOURCE, "docs", "SERVER.md"))
    rows = re.findall(r"^\| (`BITNET_[^|]*`) \| (work|left out): ([^|]*) \|$", docs, re.M)
    check(len(rows) > 10, f"the table was not understood: {rows}")
    for names, state, what in rows:
        for name in re.findall(r"BITNET_\w+", names):
            equal(re.search(rf"\b{name}\b", options) is not None, state == "work", f"{name} is an option's variable; docs say {state}")
        for option in re.findall(r"`--([a-z-]+)`", what):
            check(f'"{option}"' in options, f"{names}: there is no option --{option}")


def test_every_route_is_in_the_docs():
    docs = text_of(os.path.join(SOURCE, "docs", "SERVER.md"))
    for method, path, *_ in ROUTES:
        check(path in docs, f"docs/SERVER.md does not name {method} {path}")


main(globals())
