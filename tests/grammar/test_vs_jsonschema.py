"""test_vs_jsonschema.py - what our schemas let through, judged by the package jsonschema: random walks along the allowed tokens of three
vocabularies give JSON that validates; instances made for a schema are let through; what is not enforced is refused by name."""
import datetime
import importlib.util
import ipaddress
import json
import os
import random
import re
import struct
import subprocess
import sys
import time
import urllib.parse
import uuid

SOURCE = os.environ.get("BITNET_SOURCE") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PYTHON = os.environ.get("BITNET_PYTHON") or os.path.join(SOURCE, "build", "venv", "bin", "python")
BUILD = os.environ.get("BITNET_BUILD") or os.path.join(SOURCE, "build", "release")
QUICK = os.environ.get("BITNET_GOLDEN_QUICK", "0") not in ("", "0")
GENERATED, WALKS = (60, 2) if QUICK else (400, 4)
GBNF, SCHEMA, OBJECT = 0, 1, 2

if importlib.util.find_spec("jsonschema") is None:
    if not os.path.exists(PYTHON) or os.environ.get("BITNET_REEXEC"):
        print("skipped: the Python package jsonschema is not there (tools/setup fetches it)")
        sys.exit(77)
    os.environ["BITNET_REEXEC"] = "1"
    os.execv(PYTHON, [PYTHON] + sys.argv)
import jsonschema  # noqa: E402

CHECKER = jsonschema.FormatChecker(formats=())


@CHECKER.checks("date", raises=ValueError)
def is_date(text):
    return not isinstance(text, str) or isinstance(datetime.date.fromisoformat(text), datetime.date) and len(text) == 10


@CHECKER.checks("time", raises=ValueError)
def is_time(text):
    return not isinstance(text, str) or datetime.time.fromisoformat(text.replace("Z", "+00:00")).tzinfo is not None


@CHECKER.checks("date-time", raises=ValueError)
def is_date_time(text):
    return not isinstance(text, str) or text[10] == "T" and is_date(text[:10]) and is_time(text[11:])


@CHECKER.checks("uuid", raises=ValueError)
def is_uuid(text):
    return not isinstance(text, str) or str(uuid.UUID(text)) == text.lower()


@CHECKER.checks("duration")
def is_duration(text):
    """Of RFC 3339, its ABNF word by word."""
    second, day = "[0-9]+S", "[0-9]+D"
    minute, month = f"[0-9]+M(?:{second})?", f"[0-9]+M(?:{day})?"
    hour, year = f"[0-9]+H(?:{minute})?", f"[0-9]+Y(?:{month})?"
    clock = f"T(?:{hour}|{minute}|{second})"
    return not isinstance(text, str) or re.fullmatch(f"P(?:(?:{day}|{month}|{year})(?:{clock})?|{clock}|[0-9]+W)", text) is not None


@CHECKER.checks("ipv4", raises=ValueError)
def is_ipv4(text):
    return not isinstance(text, str) or str(ipaddress.IPv4Address(text)) == text


@CHECKER.checks("ipv6", raises=ValueError)
def is_ipv6(text):
    return not isinstance(text, str) or ipaddress.IPv6Address(text).scope_id is None


@CHECKER.checks("hostname")
def is_hostname(text):
    """Of RFC 1123, without names of IDNA (xn--), and none that a reader of addresses takes for a number."""
    if not isinstance(text, str):
        return True
    labels = text.split(".")
    good = [1 <= len(s) <= 63 and s[0] != "-" != s[-1] and s[2:4] != "--" and all(c.isascii() and c.isalnum() or c == "-" for c in s) for s in labels]
    return len(text) <= 253 and all(good) and not labels[-1][0].isdigit()


@CHECKER.checks("email")
def is_email(text):
    """Of RFC 5321: atoms with points between them, and a name of a host in a domain."""
    if not isinstance(text, str):
        return True
    local, _, host = text.rpartition("@")
    atoms = all(s and all(c.isascii() and c.isalnum() or c in "!#$%&'*+-/=?^_`{|}~" for c in s) for s in local.split("."))
    return atoms and len(local) <= 64 and len(text) <= 254 and "." in host and is_hostname(host)


@CHECKER.checks("uri", raises=ValueError)
def is_uri(text):
    """Of RFC 3986, as far as http and https go."""
    if not isinstance(text, str):
        return True
    parts = urllib.parse.urlsplit(text)
    escaped = re.fullmatch("(?:[A-Za-z0-9._~:/?#@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*", text) is not None
    host = is_hostname(parts.hostname) or is_ipv4(parts.hostname)
    port = parts.port is None or 0 < parts.port < 65536
    whole = parts.scheme in ("http", "https") and (not parts.path or parts.path[0] == "/") and "#" not in parts.fragment
    return whole and escaped and host and port and "@" not in parts.netloc and not parts.netloc.endswith(":") and len(text) <= 2000


for bits in (8, 16, 32, 64):
    for name, least, most in ((f"int{bits}", -1 << bits - 1, (1 << bits - 1) - 1), (f"uint{bits}", 0, (1 << bits) - 1)):
        CHECKER.checks(name)(lambda v, least=least, most=most: not isinstance(v, (int, float)) or isinstance(v, int) and least <= v <= most)
CHECKER.checks("int")(lambda v: CHECKER.conforms(v, "int32"))
CHECKER.checks("uint")(lambda v: CHECKER.conforms(v, "uint32"))

# what Zod 4 writes for z.email(), z.iso.duration(), z.iso.date(), z.iso.datetime(), the same with an offset, z.hostname(), z.uuidv4() and z.ipv4()
ZOD_EMAIL = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
ZOD_DURATION = r"^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$"
ZOD_DATE = (r"^(?:(?:\d\d[2468][048]|\d\d[13579][26]|\d\d0[48]|[02468][048]00|[13579][26]00)-02-29|\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])"
            r"|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|(?:02)-(?:0[1-9]|1\d|2[0-8])))$")
ZOD_TIME = ZOD_DATE[:-1] + r"T(?:(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?(?:Z))$"
ZOD_OFFSET = ZOD_TIME.replace("(?:Z)", r"(?:Z|([+-](?:[01]\d|2[0-3]):[0-5]\d))")
ZOD_HOST = r"^(?=.{1,253}\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\.?$"
ZOD_UUID = "^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12})$"
ZOD_IPV4 = "^(?:(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9][0-9]|[0-9])\\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9][0-9]|[0-9])$"

# the longest of each format: one character more is not written
LONG_HOST = ".".join(["a" + "-a" * 31] * 3 + ["a" + "-a" * 30])
LONG_EMAIL = "a" + ".a" * 31 + "@" + ("b" + "-b" * 17 + ".") * 4 + "c" * 18
LONG_URI = f"https://{LONG_HOST}:59999/{'%20' * 280}?{'%20' * 190}#{'%20' * 100}"

# schemas, instances that are let through, instances that are not
CASES = [
    ({"type": "string"}, ["", "a\"\\\n\u00e9\u20ac\U0001f600", "x" * 300], [1, None, [], {}]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "\u00e9\u20ac\U0001f600", "\n\t\""], ["", "a", "abcd"]),
    ({"type": "integer"}, [0, -1, 999999999999999999, -999999999999999999], [1.5, "1", None, 10 ** 18, 9223372036854775808]),
    ({"type": "integer", "minimum": 3}, [3, 999999999999999999], [2, 10 ** 18, 9999999999999999999]),
    ({"type": "integer", "maximum": 3}, [3, -999999999999999999], [4, -10 ** 18, -9999999999999999999]),
    ({"type": "integer", "exclusiveMinimum": 9007199254740991}, [9007199254740992], [9007199254740991, 10 ** 18]),
    ({"type": "integer", "exclusiveMinimum": 9007199254740992}, [9007199254740993, 999999999999999999], [9007199254740992, 10 ** 18]),
    ({"type": "integer", "minimum": 9007199254740993, "exclusiveMaximum": 9007199254740995}, [9007199254740993, 9007199254740994],
     [9007199254740992, 9007199254740995]),
    ({"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807}, [0, -1, 10 ** 18, 9223372036854775807, -9223372036854775808],
     [9223372036854775808, -9223372036854775809]),
    ({"type": "integer", "minimum": 10 ** 18}, [10 ** 18, 9223372036854775807], [10 ** 18 - 1, 9223372036854775808]),
    ({"type": "integer", "maximum": -10 ** 18}, [-10 ** 18, -9223372036854775808], [1 - 10 ** 18, -9223372036854775809]),
    ({"type": "integer", "allOf": [{"minimum": 9007199254740992}, {"minimum": 9007199254740993}]}, [9007199254740993], [9007199254740992]),
    ({"type": "integer", "allOf": [{"maximum": 9007199254740993}, {"maximum": 9007199254740992}]}, [9007199254740992], [9007199254740993]),
    ({"type": "number"}, [999999999999999999, 1.5], [10 ** 18, 9223372036854775808]),
    ({"type": "object"}, [{"a": 999999999999999999}], [{"a": 10 ** 18}]),
    ({"type": "integer", "minimum": -12, "maximum": 1005}, [-12, -1, 0, 7, 999, 1005], [-13, 1006, -100, 10000]),
    ({"type": "integer", "exclusiveMinimum": 99, "exclusiveMaximum": 110}, [100, 109], [99, 110, 10, 11]),
    ({"type": "integer", "minimum": 3}, [3, 10, 123456789], [2, 0, -5]),
    ({"type": "integer", "maximum": -3}, [-3, -10, -123456], [-2, 0, 5]),
    ({"type": "number"}, [0, 1.5, -2.25, 1e20, 5e-7], ["1", True]),
    ({"type": "number", "minimum": 0, "maximum": 1}, [0, 0.5, 1, 1.0, 0.999], [-0.1, 1.1, 2]),
    ({"type": "number", "exclusiveMinimum": 0}, [0.001, 1, 20.5], [0, -1, 0.0]),
    ({"type": "number", "exclusiveMinimum": 999999999}, [999999999.5, 999999999.25], [999999999, 5, -999999999.5, 1000000000]),
    ({"type": "number", "exclusiveMaximum": -999999999}, [-999999999.5], [-999999999, -5, 999999999.5]),
    ({"type": "number", "exclusiveMinimum": -1000000000, "maximum": -999999999}, [-999999999.5, -999999999], [-1000000000, -5]),
    ({"type": "number", "minimum": -3, "exclusiveMaximum": 0}, [-3, -0.5, -2.75], [0, -3.5, 1]),
    ({"type": ["string", "null"]}, ["a", None], [1, False]),
    ({"type": "boolean"}, [True, False], [None, 0]),
    ({"type": "null"}, [None], [False, 0]),
    ({"enum": ["a", 1, None, [1, 2], {"x": "y"}]}, ["a", 1, None, [1, 2], {"x": "y"}], ["b", 2]),
    ({"const": {"a": [1, "\u00e9"]}}, [{"a": [1, "\u00e9"]}], [{"a": [1]}]),
    ({"type": "string", "enum": ["a", "b", 3]}, ["a", "b"], ["c", 3]),
    ({"const": 12345678901234567890}, [12345678901234567890], [12345678901234567168, 12345678901234567891, 1.2345678901234567e19]),
    ({"type": "integer", "enum": [-12345678901234567890, 9223372036854775808, 7.0, 0.1, 10.5]}, [-12345678901234567890, 9223372036854775808, 7.0], [0.1, 10.5, 1]),
    ({"enum": [0.1, 1, 1.0, -2.5e-300, [1e22, {"a": 0.3}]]}, [0.1, 1, 1.0, -2.5e-300, [1e22, {"a": 0.3}]], [0.10000000000000002, 0.3, 1.1]),
    ({"allOf": [{"const": [0.1, 12345678901234567890]}, {"const": [0.1, 12345678901234567890]}]}, [[0.1, 12345678901234567890]], [[0.1, 12345678901234567891]]),
    ({"oneOf": [{"const": 12345678901234567890}, {"const": 0.1}]}, [12345678901234567890, 0.1], [1]),
    ({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "null"}}, "required": ["b"]},
     [{"b": "x"}, {"a": 1, "b": "x"}, {"b": "x", "c": None}, {"a": 1, "b": "x", "c": None}], [{}, {"a": 1}, {"a": "x", "b": "x"}]),
    ({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}, [{}, {"a": 1}, {"b": "x"}, {"a": 1, "b": ""}],
     [{"c": 1}]),
    ({"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
     [{}, {"a": 1}, {"a": 1, "b": "x"}, {"b": "x", "aa": ""}, {"": "e"}], [{"b": 1}, {"a": "x"}]),
    ({"type": "object", "properties": {"ab": {"const": 1}, "abc": {"const": 2}, "\u00e9": {"const": 3}}, "additionalProperties": True},
     [{"a": None, "abcd": [], "\u00e9\u00e9": {}}, {"ab": 1, "abd": 0}, {"abc": 2}], [{"ab": 2}, {"abc": 1}, {"\u00e9": 0}]),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, [{}, {"x": 1, "y": 2}], [{"x": "1"}]),
    ({"type": "object"}, [{}, {"a": {"b": [1, 2.5, "x", None, True]}}], [[], 1]),
    ({"type": "object", "required": ["a", "b", "a", "c", "c"], "properties": {"b": {"type": "null"}}}, [{"b": None, "a": 1, "c": 2}],
     [{"a": 1, "c": 2}, {"b": None, "a": 1}]),
    ({"type": "object", "required": ["a", "b"], "properties": {"a": {}, "b": {}, "c": {}},
      "allOf": [{"required": ["b", "c"]}, True, {"required": ["a"], "properties": {"c": {"type": "integer"}}}, {"properties": {"c": {"minimum": 3}}},
                {"properties": {"c": {"maximum": 5}}}]}, [{"a": 1, "b": 2, "c": 3}], [{"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 6}, {"a": 1, "b": 2, "c": 2}]),
    ({"type": "object", "required": ["a"]}, [{"a": 1}, {"a": None, "b": 2}], [{}]),
    ({}, [1, "a", None, [], {}, {"a": [{}]}, True, -2.5], []),
    (True, [1, {"a": 1}], []),
    ({"type": "array", "items": {"type": "integer"}}, [[], [1], [1, 2, 3]], [["a"], {}]),
    ({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3}, [[1, 2], [1, 2, 3]], [[], [1], [1, 2, 3, 4]]),
    ({"type": "array", "items": {"type": "integer"}, "maxItems": 0}, [[]], [[1]]),
    ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "items": False}, [[1, "a"]],
     [[], [1], ["a", 1], [1, "a", 2]]),
    ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {"type": "null"}},
     [[], [1], [1, "a"], [1, "a", None, None]], [["a"], [1, None]]),
    ({"type": "array", "items": [{"type": "integer"}], "additionalItems": {"type": "string"}, "minItems": 1}, [[1], [1, "a"]], [[], ["a"]]),
    ({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}}]}, [1, [], [1, [2, [[]]]]], ["a", [None]]),
    ({"oneOf": [{"type": "string", "maxLength": 2}, {"type": "integer"}], "title": "t"}, ["ab", 1], ["abc", None]),
    ({"oneOf": [{"type": ["string", "null"]}, {"type": "integer"}, {"enum": [1.5, True]}]}, ["ab", None, 1, 1.5, True], [2.5, False]),
    ({"oneOf": [{"enum": ["a", "b", 1]}, {"const": "c"}, {"const": 2}]}, ["a", 1, "c", 2], ["d", 3]),
    ({"oneOf": [{"type": "integer", "exclusiveMaximum": 5}, {"type": "integer", "minimum": 5, "maximum": 7}, {"type": "integer", "minimum": 8}]},
     [4, 5, 7, 8], []),
    ({"oneOf": [{"type": "string", "maxLength": 2}, {"type": "string", "minLength": 3, "maxLength": 4}]}, ["ab", "abcd"], ["abcde"]),
    ({"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}], "discriminator": {"propertyName": "kind", "mapping": {"cat": "#/$defs/cat"}},
      "$defs": {"cat": {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}, "required": ["kind"]},
                "dog": {"type": "object", "properties": {"kind": {"enum": ["dog", "wolf"]}}, "required": ["kind"]}}},
     [{"kind": "cat", "lives": 9}, {"kind": "wolf"}], [{"kind": "bird"}, {}]),
    ({"type": "object", "required": ["kind"], "oneOf": [{"properties": {"kind": {"const": "a"}}}, {"properties": {"kind": {"type": "integer"}}}]},
     [{"kind": "a"}, {"kind": 7}], [{"kind": "b"}]),
    ({"oneOf": [{"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"], "additionalProperties": False},
                {"type": "object", "properties": {"b": {"type": "null"}}, "required": ["b"], "additionalProperties": False}]},
     [{"a": None}, {"b": None}], [{}, {"a": None, "b": None}]),
    ({"oneOf": [{"anyOf": [{"type": "null"}, {"type": "boolean"}]}, {"allOf": [{"type": "integer"}, {"minimum": 1}]}]}, [None, True, 1], [0, "a"]),
    ({"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"],
      "anyOf": [{"properties": {"x": {"type": "integer"}}, "required": ["x"]}, {"properties": {"y": {"type": "null"}}, "required": ["y"]}]},
     [{"k": "", "x": 1}, {"k": "a", "y": None}], [{"k": ""}, {"x": 1}]),
    ({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"$ref": "#/$defs/b"}],
      "$defs": {"b": {"properties": {"b": {"type": "string"}, "a": {"minimum": 3}}, "required": ["b"]}}},
     [{"a": 3, "b": ""}], [{"a": 2, "b": ""}, {"a": 3}, {"b": ""}]),
    ({"allOf": [{"type": "array", "prefixItems": [{"type": "integer"}], "minItems": 1}, {"prefixItems": [{"type": "integer"}], "items": {"type": "null"}}]},
     [[1], [1, None]], [[], [None], [1, 1]]),
    ({"type": "array", "items": {"type": "string"}, "anyOf": [{"minItems": 2}, {"items": {"type": "string"}, "maxItems": 1}]},
     [[], ["a"], ["a", "b"]], [[1], ["a", 1]]),
    ({"$ref": "#/definitions/tree", "definitions": {"tree": {"type": "object", "properties": {
        "v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/definitions/tree"}}}, "required": ["v"]}}},
     [{"v": 1}, {"v": 1, "kids": [{"v": 2, "kids": []}, {"v": 3}]}], [{"kids": []}, {"v": 1, "kids": [1]}]),
    ({"properties": {"a/b~c": {"type": "integer"}, "d": {"$ref": "#/properties/a~1b~0c"}}}, [{"a/b~c": 1, "d": 2}], [{"d": "x"}]),
    ({"properties": {"a%25b": {"type": "integer"}, "c": {"$ref": "#/properties/a%25b"}, "a%b": {"type": "null"}, "d": {"$ref": "#/properties/%61%25b"},
                     "100%": {"const": 1}, "e": {"$ref": "#/properties/100%"}}, "required": ["c", "d"]},
     [{"c": None, "d": None}, {"a%25b": 1, "c": None, "a%b": None, "d": None, "100%": 1, "e": 1}], [{"c": 1, "d": None}, {"c": None, "d": 1}]),
    ({"type": "string", "pattern": "^[a-c]+-\\d{2,3}$"}, ["a-12", "abc-123"], ["-12", "d-12", "a-1", "a-12 "]),
    ({"type": "string", "pattern": "ab|^c.e$"}, ["ab", "xxabyy", "cde", "c\u00e9e"], ["a", "xcde", "c\ne"]),
    ({"type": "string", "pattern": "^(\\w+\\.)*\\w+@(?:x|y{2})\\.com$"}, ["a@x.com", "a.b_c@yy.com"], ["@x.com", "a@y.com"]),
    ({"type": "string", "pattern": "^[^\"\\\\\\s]*[\"\\\\\\n]$"}, ["abc\"", "\\", "\u00e9\n"[1:], "a\n"], ["a", "a \""]),
    ({"type": "string", "pattern": "^$"}, [""], ["a"]),
    ({"type": "string", "pattern": "^a()(|b)$"}, ["a", "ab"], ["", "abb"]),
    ({"type": "string", "format": "date"}, ["2024-02-29", "1999-12-31", "2000-02-29", "0001-01-01"],
     ["2023-02-29", "1900-02-29", "2024-13-01", "2024-04-31", "0000-01-01"]),
    ({"type": "string", "format": "time"}, ["00:00:00Z", "23:59:59.123+02:00"], ["24:00:00Z", "12:60:00Z", "12:00:00"]),
    ({"type": "string", "format": "date-time"}, ["2024-02-29T12:34:56Z"], ["2024-02-29 12:34:56Z", "2024-02-29"]),
    ({"type": "string", "format": "uuid"}, ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567e89b12d3a456426614174000"]),
    ({"type": "string", "format": "duration"}, ["P1D", "P3Y6M4D", "P1Y", "P2W", "P1DT12H30M5S", "PT36H", "PT0S", "P9999M1D"],
     ["", "P", "PT", "1D", "P1", "P1DT", "P1S", "P1Y2D", "PT1H2S", "P1W2D", "P1.5D", "-P1D", "P1D ", "p1d"]),
    ({"type": "string", "format": "email"}, ["a@b.cc", "joe.smith+news@mail.example.co.uk", "o'brien@x-y.org", "A_1-2@1a.example"],
     ["", "a", "a@", "@b.cc", "a@b", "a.@b.cc", ".a@b.cc", "a..b@b.cc", "a@-b.cc", "a@b-.cc", "a@b..cc", "a@b.c", "a@b.c1", "a b@b.cc", "a@b@c.dd", "a@xn--a.cc",
      "a" * 33 + "@b.cc", "a@" + "b" * 33 + ".cc"]),
    ({"type": "string", "format": "hostname"}, ["a", "localhost", "www.example.com", "1.a", "a-b.c-d.e5", "a.b.c.d.e.f.g", "a" * 32 + "." + "b" * 31],
     ["", ".", "a.", ".a", "a..b", "-a", "a-", "a.-b", "xn--a", "a--b", "a_b", "1.2.3.4", "a.1", "a.b.c.d.e.f.g.h", "\u00e9", "a b"]),
    ({"type": "string", "format": "ipv4"}, ["0.0.0.0", "255.255.255.255", "192.168.1.10"], ["256.0.0.1", "1.2.3", "1.2.3.4.5", "01.2.3.4", "1.2.3.", "1.2.3.4 "]),
    ({"type": "string", "format": "ipv6"}, ["::", "::1", "1::", "fe80::1:2", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "2001:DB8::aBcD", "1:2:3::6:7:8",
                                            "1:2:3:4:5:6::8", "1:2:3:4:5::7:8", "1:2:3:4::6:7:8", "1:2::4:5:6:7:8"],
     ["", ":", ":::", "1", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1::2::3", "1:2:3:4:5:6:7:8::", "::1:2:3:4:5:6:7:8", "1:2:3:4:5:6::7:8", "12345::", "::g", ":1", "1:", "::%a"]),
    ({"type": "string", "format": "uri"}, ["http://a", "https://www.example.com/a/b%20c;d=1?q=x&y=/?#frag", "https://localhost:8080/", "http://127.0.0.1:9/x?y#z", "https://a//b?#"],
     ["", "http://", "http:/a", "ftp://a", "//a", "a", "http://a:", "http://a:0", "http://a:65536", "http://a b", "http://a/%2", "http://a/%zz", "http://a/#b#c", "http://a/\u00e9",
      "http://a/[", "http://u@a", "http://1.2.3", "http://256.1.1.1", "http://a/\"", "http://a/" + "x" * 281]),
    ({"type": "string", "format": "email", "minLength": 6, "maxLength": 226}, [LONG_EMAIL], [f"a{LONG_EMAIL}", f"{LONG_EMAIL}c"]),
    ({"type": "string", "format": "hostname", "maxLength": 253}, [LONG_HOST, ("b" + "-b" * 17 + ".") * 6 + "c" + "-c" * 17], [f"{LONG_HOST}-a", f"a.{LONG_HOST}"]),
    ({"type": "string", "format": "uri", "minLength": 8, "maxLength": 1980}, [LONG_URI], [f"{LONG_URI}x", LONG_URI.replace("?", "x?"), LONG_URI.replace("#", "x#")]),
    ({"type": "string", "format": "duration", "minLength": 3, "maxLength": 32}, ["P1111Y1111M1111DT1111H1111M1111S"], ["P11111D"]),
    ({"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083}, ["https://a/" + "x" * 279 + "?" + "y" * 190], ["a"]),
    ({"format": "uuid", "maxLength": 36}, [str(uuid.UUID(int=7))], ["a"]),
    ({"type": "string", "format": "email", "pattern": ZOD_EMAIL}, ["joe.smith+news@mail.example.com"], ["a.@b.cc", ".a@b.cc", "a..b@b.cc", "a@b"]),
    ({"type": "string", "format": "email", "pattern": ZOD_EMAIL, "maxLength": 254}, ["a@b.cc"], ["a@b"]),
    ({"type": "string", "format": "duration", "pattern": ZOD_DURATION}, ["P1DT2H", "P3W"], ["P", "P1W1D"]),
    ({"type": "string", "format": "date", "pattern": ZOD_DATE}, ["2024-02-29", "2023-01-31"], ["2023-02-29", "2023-13-01", "0000-01-01"]),
    ({"type": "string", "format": "date-time", "pattern": ZOD_TIME, "maxLength": 27}, ["2024-02-29T12:34:56Z", "2024-02-28T12:34:56.123456Z"],
     ["2024-02-29T12:34Z", "2024-02-29T12:34:56+01:00", "0000-01-01T00:00:00Z"]),
    ({"type": "string", "format": "date-time", "pattern": ZOD_OFFSET}, ["2024-02-29T12:34:56Z", "2024-02-29T12:34:56.7-23:59"], ["2024-02-29T12:34Z", "2024-02-29T12:34:56"]),
    ({"type": "string", "format": "hostname", "pattern": ZOD_HOST}, ["www.example.com", LONG_HOST], ["", "a.", "-a"]),
    ({"type": "string", "format": "uuid", "pattern": ZOD_UUID}, ["123e4567-e89b-42d3-a456-426614174000"], ["123e4567-e89b-12d3-a456-426614174000"]),
    ({"type": "string", "format": "ipv4", "pattern": ZOD_IPV4}, ["10.0.0.255"], ["10.0.0.256"]), ({"type": "string", "format": "thing", "pattern": "^a+$"}, ["aa"], ["b"]),
    ({"type": "object", "properties": {"a": {"format": "uri"}, "b": {"type": "string", "format": "uri"}, "c": {"type": ["null", "string"], "format": "ipv4"}}},
     [{"a": "http://a", "b": "https://b/", "c": "1.2.3.4"}, {"b": "http://a"}, {"c": None}], [{"a": "1.2.3.4"}, {"b": 1}, {"c": "http://a"}]),
    ({"type": "integer", "format": "uint8"}, [0, 255], [-1, 256, 501100005608125458]),
    ({"type": "integer", "format": "int8"}, [-128, 127], [-129, 128]), ({"type": "integer", "format": "int16"}, [-32768, 32767], [-32769, 32768]),
    ({"type": "integer", "format": "uint16"}, [0, 65535], [-1, 65536]), ({"type": "integer", "format": "int32"}, [-2147483648, 2147483647], [2147483648]),
    ({"type": "integer", "format": "uint32"}, [4294967295], [4294967296, -1]), ({"type": "integer", "format": "uint64"}, [0, 999999999999999999], [-1]),
    ({"type": "integer", "format": "int64"}, [-9223372036854775808, 9223372036854775807], [9223372036854775808, 1.5]),
    ({"type": "integer", "format": "int"}, [-2147483648, 2147483647], [-2147483649, 2147483648]), ({"type": "integer", "format": "uint"}, [0], [-1, 4294967296]),
    ({"type": "integer", "format": "uint8", "minimum": -5, "exclusiveMaximum": 10}, [0, 9], [-5, 10]), ({"format": "uint8"}, [0, 255], [256, 1.5, "a"]),
    ({"type": "integer", "format": "uint8", "minimum": 250, "maximum": 300}, [250, 255], [249, 256]), ({"type": "number", "format": "int8"}, [-128, 1], [1.5, 128]),
    ({"type": "integer", "format": "uint64", "minimum": 10 ** 18}, [10 ** 18, 9223372036854775807], [10 ** 18 - 1]),
    ({"type": ["integer", "null"], "format": "int8"}, [None, 5], [500]), ({"format": "int8", "minimum": 3}, [3, 127], [2, 128, 3.5, "a"]),
    ({"type": "number", "format": "double"}, [1.5, -2], ["a"]), ({"type": "number", "format": "float", "minimum": 0}, [1.5, 0], [-1]),
    ({"type": "integer", "format": "double"}, [-7], [1.5]), ({"format": "float"}, [1.5, -2], ["a"]),
    ({"type": "integer", "allOf": [{"format": "int8"}, {"minimum": 100}]}, [100, 127], [99, 128]),
    ({"type": ["string", "integer"], "format": "date"}, ["2024-02-29", 700], ["a"]), ({"format": "uuid", "minimum": 3}, [3, 4.5], [2, "a"]),
    ({"title": "t", "description": "d", "default": 1, "examples": [1], "$schema": "s", "$id": "i", "$comment": "c", "type": "integer"},
     [1], ["a"]),
    ({"type": "integer", "multipleOf": 1}, [0, -7, 10 ** 17], [0.5, "1"]), ({"type": "number", "multipleOf": 1, "minimum": 0.5, "maximum": 12}, [1, 12], [0, 1.5, 13]),
    ({"multipleOf": 1}, [3, -3], [3.5, "a"]), ({"type": ["number", "null"], "multipleOf": 1}, [3, None], [3.5]),
    ({"type": "number", "allOf": [{"multipleOf": 1}, {"maximum": 3}]}, [3, -1], [4, 2.5]),
    ({"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "number"}}, [{}, {"a": 1, "": 2.5}], [{"a": "x"}]),
    ({"x-order": 1, "x-": {"type": "string"}, "type": "object", "properties": {"x-a": {"type": "integer", "x-unit": "m"}}, "required": ["x-a"]}, [{"x-a": 1}], [{}, {"x-a": "m"}]),
    ({"type": "object", "propertyNames": True, "anyOf": [{"propertyNames": {}, "properties": {"a": {"const": 1}}}, {"x-a": 1, "properties": {"b": {"const": 2}}}]},
     [{"a": 1}, {"b": 2}], [{"a": 2}]),
    ({"allOf": [{"x-a": 1, "type": "object"}, {"x-a": 2, "propertyNames": {"description": "d", "x-b": 3, "type": "string"}, "properties": {"a": {"$ref": "#/$defs/i", "x-c": 1}}}],
      "$defs": {"i": {"type": "integer"}}}, [{"a": 1}], [{"a": "x"}]), ({"propertyNames": {"type": "string"}}, [1, "a", {"a": 1}], []),
    ({"const": 5, "x-names": ["five"], "propertyNames": {}}, [5], [6]),
    ({"$id": "http://x/root", "$ref": "#/$defs/a", "$defs": {"a": {"$anchor": "n", "type": "object", "properties": {"$id": {"type": "integer"}, "n": {
        "$ref": "#/$defs/a/properties/$id"}}, "required": ["$id"]}}}, [{"$id": 1}, {"$id": 1, "n": 2}], [{"$id": "a"}, {"n": 2}]),
    ({"$id": "http://x/root", "allOf": [{"type": "integer"}, {"minimum": 3}]}, [3], [2]),
    ({"$id": "http://x/root", "type": "object", "anyOf": [{"properties": {"a": {"$ref": "#/$defs/i"}}}, {"properties": {"b": {"$ref": "#"}}}],
      "$defs": {"i": {"const": {"$id": "http://x/i"}}}}, [{"a": {"$id": "http://x/i"}}, {"b": {"b": {}}}], [{"a": 1}]),
]

# "#/$defs/B" in A is A's own B, not the root's
NESTED = {"$defs": {"A": {"$id": "http://x/a", "$defs": {"B": {"type": "string"}}, "type": "object", "properties": {"p": {"$ref": "#/$defs/B"}},
                          "required": ["p"]}, "B": {"const": 7}}, "$ref": "#/$defs/A"}

REFUSED = [
    ({"type": "integer", "multipleOf": 3}, "but for 1"), ({"multipleOf": 0.01}, "multipleOf"), ({"type": "number", "multipleOf": 1.0000000000000000001}, "multipleOf"),
    ({"type": "string", "multipleOf": "1"}, "multipleOf"), ({"allOf": [{"multipleOf": 1}, {"multipleOf": 2}]}, "multipleOf"), ({"not": {}}, "not"), ({"if": {}}, "if"), ({"type": "string", "format": "iri"}, "iri"),
    ({"type": "integer", "format": "int24"}, "int24"), ({"type": "number", "format": "decimal"}, "decimal"), ({"type": "number", "format": 3}, "format"),
    ({"type": "integer", "format": "date"}, "date"), ({"type": ["string", "integer"], "format": "int32"}, "int32"), ({"type": "string", "format": "int32"}, "int32"),
    ({"type": ["string", "integer"], "format": "iri"}, "iri"), ({"format": "iri"}, "iri"), ({"type": "integer", "allOf": [{"format": "email"}]}, "email"),
    ({"type": "string", "format": "uri", "maxLength": 1979}, "\"format\" at #"), ({"type": "string", "format": "uri", "minLength": 9}, "8 to 1980"),
    ({"type": "string", "format": "email", "pattern": ZOD_EMAIL, "maxLength": 100}, "6 to 226"), ({"type": "string", "format": "uuid", "pattern": ZOD_UUID, "maxLength": 36}, "pattern"),
    ({"type": "string", "format": "uri", "pattern": ZOD_EMAIL}, "pattern"), ({"type": "string", "format": "date-time", "pattern": ZOD_TIME, "maxLength": 26}, "20 to 27"),
    ({"type": "string", "format": "email", "pattern": ZOD_HOST}, "this kind of group"), ({"type": "string", "format": "email", "pattern": ZOD_EMAIL[:-1]}, "pattern"),
    ({"type": "string", "pattern": ZOD_EMAIL}, "pattern"), ({"type": "string", "format": 3, "pattern": "a"}, "format"), ({"type": "string", "format": "email", "pattern": 3}, "pattern"),
    ({"type": "integer", "format": "uint8", "minimum": 256}, "no such integer in the format uint8"), ({"format": "uint8", "maximum": -1}, "no such integer"),
    ({"allOf": [{"format": "int8"}, {"format": "uint8"}]}, "format"),
    ({"type": "array", "uniqueItems": True}, "uniqueItems"), ({"type": "array", "contains": {}}, "contains"),
    ({"type": "object", "properties": {"a": {"patternProperties": {}}}}, "#/properties/a"), ({"type": "object", "minProperties": 1}, "minProperties"),
    ({"type": "object", "propertyNames": {"maxLength": 3}}, "propertyNames"), ({"propertyNames": False}, "propertyNames"),
    ({"type": "object", "propertyNames": {"type": ["string"]}}, "propertyNames"), ({"propertyNames": {"type": "integer"}}, "propertyNames"), ({"propertyNames": 3}, "propertyNames"),
    ({"anyOf": [{"type": "object", "propertyNames": {"pattern": "a"}}]}, "propertyNames"), ({"allOf": [{"type": "object"}, {"propertyNames": {"enum": ["a"]}}]}, "propertyNames"),
    ({"propertyNames": {"$ref": "#/$defs/a"}, "$defs": {"a": {}}}, "propertyNames"), ({"X-a": 1}, "X-a"), ({"xa": 1}, "xa"), ({"type": "object", "dependentRequired": {}}, "dependentRequired"),
    ({"type": "object", "unevaluatedProperties": False}, "unevaluatedProperties"), ({"type": "thing"}, "type"), ({"type": []}, "empty"),
    ({"type": "string", "pattern": "(?=a)b"}, "pattern"), ({"type": "string", "pattern": "(a)\\1"}, "pattern"),
    ({"type": "string", "pattern": "a\\b"}, "pattern"), ({"type": "string", "pattern": "(a"}, "pattern"), ({"type": "string", "pattern": "a)"}, "pattern"),
    ({"type": "string", "pattern": "^[]a]$"}, "write \\]"), ({"type": "string", "pattern": "^[^]]{2}$"}, "write \\]"), ({"type": "string", "pattern": "[^]"}, "pattern"),
    ({"type": "string", "pattern": "^[_[:alpha:]]$"}, "write \\["),
    ({"type": "string", "pattern": "[]"}, "pattern"), ({"type": "string", "pattern": "^[^\\s\\x00-\\x1b\\x20-\\x7f]{4}$"}, "pattern"),
    ({"type": "string", "pattern": "[z-a]"}, "pattern"), ({"type": "string", "pattern": "a{3,2}"}, "pattern"), ({"type": "string", "pattern": "\\p{L}"}, "pattern"),
    ({"type": "string", "pattern": "a", "minLength": 1}, "pattern"), ({"type": "string", "format": "date", "maxLength": 1}, "format"),
    ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength"), ({"type": "string", "minLength": -1}, "minLength"),
    ({"type": "integer", "minimum": 3, "maximum": 2}, "minimum"), ({"type": "number", "minimum": 0.5}, "minimum"), ({"type": "integer", "minimum": "1"}, "minimum"),
    ({"type": "integer", "exclusiveMinimum": 1e17}, "2^53"), ({"type": "integer", "exclusiveMaximum": -9007199254740992.0}, "2^53"),
    ({"type": "integer", "minimum": 9223372036854775808}, "64 bits"), ({"type": "integer", "maximum": 1e300}, "64 bits"),
    ({"type": "integer", "exclusiveMinimum": 9223372036854775807}, "no such integer"), ({"type": "number", "minimum": 9007199254740993}, "10^9"),
    ({"type": "integer", "exclusiveMaximum": -9223372036854775808}, "no such integer"),
    ({"type": "integer", "minimum": 9007199254740993, "maximum": 9007199254740992}, "no such integer"),
    ({"type": "integer", "maximum": 9007199254740993, "allOf": [{"maximum": 9007199254740992.0}]}, "2^53"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf"), ({"oneOf": [{"type": "integer"}, True]}, "oneOf"),
    ({"oneOf": [{"minLength": 2}, {"type": "integer"}]}, "oneOf"), ({"oneOf": [{"const": 1}, {"const": 1.0}]}, "oneOf"),
    ({"oneOf": [{"enum": ["a", "b"]}, {"enum": ["c", "b"]}]}, "both 0 and 1"), ({"oneOf": [{"type": "string"}, {"const": "x"}]}, "oneOf"),
    ({"oneOf": [{"type": "integer", "maximum": 5}, {"type": "integer", "minimum": 5}]}, "oneOf"),
    ({"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}}}, {"type": "object", "properties": {"k": {"const": "b"}}}]}, "oneOf"),
    ({"oneOf": [{"properties": {"k": {"const": "a"}}, "required": ["k"]}, {"properties": {"k": {"const": "b"}}, "required": ["k"]}]}, "oneOf"),
    ({"type": "object", "properties": {"a": {}, "b": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, "oneOf"),
    ({"oneOf": [{"$ref": "#"}, {"$ref": "#"}]}, "oneOf"), ({"oneOf": [{"type": "integer"}, {"anyOf": [{"type": "null"}, {"type": "integer"}]}]}, "oneOf"),
    ({"oneOf": [{"type": "integer", "exclusiveMaximum": 9007199254740993}, {"type": "integer", "minimum": 9007199254740992}]}, "oneOf"),
    ({"type": "array", "minItems": 3, "maxItems": 2}, "minItems"), ({"type": "array", "prefixItems": [{}], "items": False, "minItems": 2}, "minItems"),
    (NESTED, "\"$id\" at #/$defs/A: \"http://x/a\""), ({**NESTED, "$ref": "#/$defs/A/properties/p"}, "$id"), ({"allOf": [{"$id": "a"}]}, "$id"),
    ({"allOf": [{"$id": "a", "$ref": "#/$defs/a"}], "$defs": {"a": {}}}, "$id"), ({"anyOf": [{"$id": "a"}, {"type": "integer"}]}, "$id"),
    ({"type": "object", "allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$id": "a"}}}, "$id"), ({"properties": {"p": {"$id": 3}}}, "$id"),
    ({"$id": "http://x/a", "anyOf": [{"$ref": "http://x/a"}, {}]}, "$ref"), ({"$ref": "#a", "$defs": {"a": {"$anchor": "a"}}}, "$ref"), ({"$ref": ""}, "$ref"), ({"$ref": "%23/$defs", "$defs": {}}, "%23"),
    ({"$dynamicRef": "#"}, "$dynamicRef"), ({"$dynamicAnchor": "a"}, "$dynamicAnchor"), ({"$recursiveRef": "#"}, "$recursiveRef"), ({"id": "a"}, "\"id\""),
    ({"properties": {"p": {"$ref": "#/properties/q/anyOf/00"}, "q": {"anyOf": [{}]}}}, "names nothing"),
    ({"$ref": "#/nope"}, "nope"), ({"$ref": "http://x/y"}, "$ref"), ({"$ref": "#", "type": "object"}, "beside"), ({"$ref": "#"}, "begins with itself"),
    ({"anyOf": []}, "anyOf"), ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "begins with itself"), (False, "false"), ([], "schema"), (1, "schema"),
    ({"allOf": [{"const": 12345678901234567890}, {"const": 12345678901234567891}]}, "\"const\" at #"), ({"const": 10 ** 400}, "too large"),
    ({"allOf": [{"enum": [{"a": 12345678901234567890}]}, {"enum": [{"a": 12345678901234567891}]}]}, "\"enum\" at #"),
    ({"oneOf": [{"const": 12345678901234567890}, {"const": 12345678901234567891}]}, "oneOf"),
    ({"enum": []}, "enum"), ({"enum": [1], "minimum": 2}, "beside"), ({"enum": ["a"], "type": "integer"}, "enum"),
    ({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "ever ends"), ({"properties": 3}, "properties"), ({"required": [1]}, "required"),
    ({"required": ["a"], "properties": {}, "additionalProperties": False}, "required"),
    ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "type"), ({"allOf": [{"pattern": "a"}, {"pattern": "b"}]}, "pattern"),
    ({"allOf": [{"$ref": "#"}]}, "allOf"), ({"allOf": [{"properties": {"a": {}}, "additionalProperties": False}, {"properties": {"b": {}}}]}, "additionalProperties"),
    ({"allOf": [{"type": "array", "items": {"type": "string"}}, {"prefixItems": [{"type": "integer"}]}]}, "items"),
    ({"allOf": [{"type": "array", "prefixItems": [{}]}, {"items": {"type": "string"}}]}, "items"),
    ({"allOf": [{"prefixItems": [{}], "items": {"type": "string"}}, {"items": {"type": "string"}}]}, "items"),
    ({"type": "array", "items": {"type": "string"}, "anyOf": [{"minItems": 1}, {"prefixItems": [{"type": "integer"}]}]}, "items"),
    ({"allOf": [{"items": [{"type": "string"}], "maxItems": 1}, {"prefixItems": [{"type": "integer"}]}]}, "items"),
    ({"type": "array", "additionalItems": {"type": "string"}, "oneOf": [{"items": [{"type": "integer"}]}]}, "additionalItems"),
    ({"$defs": {"a": {"properties": {"x": {"$ref": "#/$defs/a"}}}, "b": {"properties": {"x": {"$ref": "#/$defs/b"}}, "type": "object"}},
      "allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}, "too"),
]


N = 4000
TO_NAMES = {"properties": {f"p{i}": {"type": "null"} for i in range(N)}}
NAMES = [[f"{k}{i}" for i in range(50000)] for k in "ab"]


def one_of(n, defs):
    """Told apart by "k", after "z" has been looked at in vain."""
    return {"oneOf": [{"type": "object", "required": ["z", "k"], "properties": {"z": {"$ref": "#/$defs/l"}, "k": {"const": i}}} for i in range(n)], "$defs": defs}


# schemas whose parts are compared or put together, and what is said of it (None: nothing): in little time and memory, whatever they ask for
LARGE = [
    ({**TO_NAMES, "allOf": [{"properties": {"p0": {"maxLength": i}, "z": {}}} for i in range(300)] + [{"$ref": "#/$defs/z"}] * (N - 1000),
      "$defs": {"z": {"properties": {"z": {}}}}}, None),
    ({**TO_NAMES, "anyOf": [{"properties": {"z": {}}}] * N}, "put together"),
    ({"anyOf": [{"properties": {"z": {}}}] * 20, "properties": {"x" * 900000: {}}}, "put together"),
    ({"properties": {"z": {}}, "allOf": [{"$ref": "#/$defs/all"}] * N, "$defs": {"all": TO_NAMES}}, "put together"),
    ({"allOf": [{"required": NAMES[0]}, {"required": NAMES[1]}]}, "4096"),
    ({"enum": list(range(9000)), "anyOf": [{"$ref": "#/$defs/e"}] * N, "$defs": {"e": {"enum": list(range(9000))}}}, "put together"),
    ({**TO_NAMES, "required": [f"p{i}" for i in range(N)]}, None),
    ({"properties": {f"p{i}": {"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083} for i in range(1000)}}, None),
    ({"properties": {f"p{i}": {"type": "string", "format": "uri"} for i in range(20000)}}, "instructions"),
    ({"anyOf": [{"$ref": "#/$defs/n"}] * 20000, "title": "t", "type": "object", "$defs": {"n": {"propertyNames": {f"x-{i}": 0 for i in range(40000)}}}}, "put together"),
    ({"propertyNames": {f"x-{i}": 0 for i in range(33)}}, "propertyNames"), ({"propertyNames": {f"x-{i}": 0 for i in range(32)}}, None),
    (one_of(600, {"l": {"$ref": "#/$defs/a/anyOf/" + "0" * 180000}, "a": {"anyOf": [{"type": "string"}]}}), "longer than 4096 bytes"),
    (one_of(600, {"l": {"$ref": "#/$defs/" + "a" * 4000}, "a" * 4000: {"type": "string"}}), "\"oneOf\" at #"),
    (one_of(300, {"l": {"$ref": "#/$defs/a"}, "a": {"type": "string"}}), None),
    ({"anyOf": [{}] * 5000, "properties": {"p": {"allOf": [{"$ref": "#/$defs/0"}] * 1000}},
      "$defs": {**{str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(30)}, "30": True}}, "put together"),
]


class Writer:
    """Schemas at random, with instances that they allow, in the order and form that is let through."""
    def __init__(self, seed):
        self.r = random.Random(seed)

    def text(self, least, most):
        return "".join(self.r.choice("ab\u00e9 \"\\\n\u20ac\U0001f600/{}[]0,:") for _ in range(self.r.randint(least, most)))

    def make(self, depth):
        kinds = ["string", "integer", "number", "boolean", "null", "enum", "pattern", "format", "any"]
        kind = self.r.choice(kinds if depth == 0 else kinds + ["object", "array", "anyOf", "tuple", "allOf", "map"] * 3)
        return getattr(self, "make_" + kind)(depth)

    def make_string(self, _):
        least = self.r.randint(0, 4)
        most = least + self.r.randint(0, 4)
        return {"type": "string", "minLength": least, "maxLength": most}, lambda: self.text(least, most)

    def make_integer(self, _):
        lo = self.r.choice([self.r.randint(-1200, 1200), self.r.randint(-10 ** 9, 10 ** 9)])
        hi = lo + self.r.choice([0, 1, 9, 37, 1000, 10 ** 6])
        return {"type": "integer", "minimum": lo, "maximum": hi}, lambda: self.r.choice([lo, hi, self.r.randint(lo, hi)])

    def make_number(self, _):
        lo = self.r.randint(-50, 50)
        hi = lo + self.r.randint(1, 60)
        over, under = self.r.random() < 0.3, self.r.random() < 0.3
        schema = {"type": "number", "exclusiveMinimum" if over else "minimum": lo, "exclusiveMaximum" if under else "maximum": hi}
        return schema, lambda: lo + round(self.r.uniform(0.01, 0.99), 2)

    def make_boolean(self, _):
        return {"type": "boolean"}, lambda: self.r.random() < 0.5

    def make_null(self, _):
        return {"type": "null"}, lambda: None

    def make_any(self, _):
        return self.r.choice([{}, True]), lambda: self.r.choice([1, "x", None, [], {"a": [True]}])

    def make_enum(self, _):
        values = [self.text(0, 4), self.r.randint(-99, 99), None, True, [1, "a"], {"k": "v"}][self.r.randint(0, 3):]
        return {"enum": values}, lambda: self.r.choice(values)

    def make_pattern(self, _):
        regex, texts = self.r.choice([("^[a-f]{2,4}$", ["ab", "ffff"]), ("^(x|yy)+z?$", ["x", "xyyz"]), ("^\\d{3}-\\w*$", ["123-", "000-a_9"]),
                                      ("b", ["b", "abc\n"]), ("^.{1,3}$", ["\u00e9", "a\"b"]), ("^[^a-z]*$", ["", "AB\U0001f600"])])
        return {"type": "string", "pattern": regex}, lambda: self.r.choice(texts)

    def make_format(self, _):
        name, text = self.r.choice([("date", "2024-02-29"), ("time", "12:00:00.5Z"), ("date-time", "2000-01-31T23:59:59-01:30"),
                                    ("uuid", "00000000-0000-0000-0000-00000000000f"), ("email", "a.b@c.example"), ("hostname", "a-b.example"),
                                    ("ipv4", "10.0.0.1"), ("ipv6", "fe80::1"), ("uri", "https://a.example/b?c#d"), ("duration", "P1DT12H")])
        return {"type": "string", "format": name}, lambda: text

    def make_object(self, depth):
        names = self.r.sample(["a", "ab", "b", "\u00e9", "x y", "q\"", "n/m~", "abc"], self.r.randint(0, 4))
        parts = {n: self.make(depth - 1) for n in names}
        required = [n for n in names if self.r.random() < 0.5]
        extra = self.make(0) if self.r.random() < 0.3 else None
        schema = {"type": "object", "properties": {n: s for n, (s, _) in parts.items()}, "required": required}
        schema["additionalProperties"] = extra[0] if extra else False

        def one():
            value = {n: make() for n, (_, make) in parts.items() if n in required or self.r.random() < 0.5}
            for n in self.r.sample(["other", "abcd", "aa", "z"], self.r.randint(0, 2) if extra else 0):
                value[n] = extra[1]()
            return value
        return schema, one

    def make_map(self, depth):
        item = self.make(depth - 1)
        return {"type": "object", "additionalProperties": item[0]}, lambda: {n: item[1]() for n in self.r.sample("abc", self.r.randint(0, 3))}

    def make_array(self, depth):
        item = self.make(depth - 1)
        least = self.r.randint(0, 2)
        most = least + self.r.randint(0, 3)
        return ({"type": "array", "items": item[0], "minItems": least, "maxItems": most},
                lambda: [item[1]() for _ in range(self.r.randint(least, most))])

    def make_tuple(self, depth):
        parts = [self.make(depth - 1) for _ in range(self.r.randint(1, 3))]
        rest = self.make(0)
        least = self.r.randint(0, len(parts) + 1)
        most = max(least, self.r.randint(len(parts), len(parts) + 2))
        schema = {"type": "array", "prefixItems": [s for s, _ in parts], "items": rest[0], "minItems": least, "maxItems": most}
        return schema, lambda: [(parts[i] if i < len(parts) else rest)[1]() for i in range(self.r.randint(least, most))]

    def make_anyOf(self, depth):
        parts = [self.make(depth - 1) for _ in range(self.r.randint(1, 3))]
        return {"anyOf": [s for s, _ in parts]}, lambda: self.r.choice(parts)[1]()

    def make_allOf(self, depth):
        a, b = self.make(depth - 1), self.make(depth - 1)
        return ({"type": "object", "allOf": [{"properties": {"p": a[0]}, "required": ["p"]}, {"properties": {"q": b[0]}}]},
                lambda: {"p": a[1](), **({"q": b[1]()} if self.r.random() < 0.5 else {})})


class Judge:
    def __init__(self):
        self.driver = subprocess.Popen([os.path.join(BUILD, "tests", "grammar_driver"), os.path.join(SOURCE, "models", "story.gguf")],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.passed = self.failed = self.whole = self.cut = 0

    def number(self):
        return struct.unpack("<i", self.driver.stdout.read(4))[0]

    def record(self):
        return self.driver.stdout.read(self.number())

    def ask(self, kind, source, vocab, n_walks=0, seed=0, texts=()):
        """(message or None, [(number, text)] of walks, [tokens taken, -1: all] of texts)"""
        write = self.driver.stdin.write
        write(struct.pack("<5I", kind, vocab, n_walks, seed, len(texts)))
        for text in (source, *texts):
            write(struct.pack("<I", len(text)) + text)
        self.driver.stdin.flush()
        status, message = self.number(), self.record().decode("utf-8", "replace")
        if status != 0:
            return message, [], []
        walks = [(self.number(), self.record()) for _ in range(n_walks)]
        return None, walks, [self.number() for _ in texts]

    def check(self, good, what):
        self.passed += good
        self.failed += not good
        if not good:
            print(f"failed: {what:.1500}")

    def check_walk(self, schema, number, text):
        if number == 1:
            self.cut += 1
            return
        try:
            value = json.loads(text.decode("utf-8")) if number == 0 else None
            error = None if number == 0 else text
            if number == 0:
                jsonschema.Draft202012Validator(old_form(schema), format_checker=CHECKER).validate(value)
        except Exception as e:  # whatever is wrong with it
            error = e
        self.whole += error is None
        self.check(error is None, f"{json.dumps(schema)}: a walk gave {text!r}: {error}")

    def compare(self, schema, has=(), lacks=(), seed=0, vocabs=(0, 1, 2)):
        texts = [json.dumps(v, ensure_ascii=False, separators=(",", ":")).encode() for v in (*has, *lacks)]
        texts += [json.dumps(v, ensure_ascii=False, indent=2).encode() for v in has]
        for vocab in vocabs:
            message, walks, taken = self.ask(SCHEMA, json.dumps(schema).encode(), vocab, WALKS, seed + vocab, texts)
            self.check(message is None, f"{json.dumps(schema)}: {message}")
            for number, text in walks:
                self.check_walk(schema, number, text)
            for text, n, i in zip(texts, taken, range(len(texts))):
                wanted = not len(has) <= i < len(has) + len(lacks)
                self.check((n == -1) == wanted, f"{json.dumps(schema)}, vocabulary {vocab}: {'refuses' if wanted else 'has'} {text!r} ({n})")


def old_form(schema):
    """Lists of schemas in `items` as 2020-12 spells them."""
    if isinstance(schema, dict) and isinstance(schema.get("items"), list):
        schema = {**schema, "prefixItems": schema["items"], "items": schema.get("additionalItems", True)}
        schema.pop("additionalItems", None)
    return schema


GRAMMARS = [
    (r'root ::= [a-c]+ ("-" [0-9]{2,4})? | "\u00e9"*', "(?:[a-c]+(?:-[0-9]{2,4})?|\u00e9*)"),
    (r'root ::= ("yes" | "no") (" " [^ab\n]{0,3}){1,2}', "(?:yes|no)(?: [^ab\n]{0,3}){1,2}"),
    (r'root ::= (("a" | "ab") ("c" | "bc"))+ .?', "(?:(?:a|ab)(?:c|bc))+(?:.|\n)?"),
    (r'root ::= ("x"? "y"?){2,5} [\x41-\x43\U0001F600]', "(?:x?y?){2,5}[A-C\U0001f600]"),
]


def check_grammars(judge):
    r = random.Random(7)
    for source, regex in GRAMMARS:
        texts = ["".join(r.choice("abcxy-019 \nyesno\u00e9\U0001f600AC") for _ in range(r.randint(0, 6))) for _ in range(300)]
        for vocab in (0, 1, 2):
            _, walks, taken = judge.ask(GBNF, source.encode(), vocab, 20, vocab, [t.encode() for t in texts])
            for number, text in walks:
                judge.check(number == 1 or re.fullmatch(regex, text.decode()) is not None, f"{source}: a walk gave {text!r}")
            for text, n in zip(texts, taken):
                judge.check((n == -1) == (re.fullmatch(regex, text) is not None), f"{source}, vocabulary {vocab}: {text!r}: {n}")


# what \s, \w and \d are in ECMAScript, and \s in RE2
ECMA = {"s": "\\t-\\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff", "w": "A-Za-z0-9_", "d": "0-9"}
RE2 = {**ECMA, "s": "\\t\\n\\f\\r "}
SETS = ["\\s", "\\S", "\\w", "\\W", "\\d", "\\D"]
CLASSES = [*SETS, *(f"[{s}]" for s in SETS), *(f"[^{s}]" for s in SETS), "[\\s\\d]", "[^\\s\\d]", "[\\S\\t]", "[^\\S\\t]", "[^\\W_]", "[^\\D5]", "[a-c\\W]",
           "[^a-c\\S]", "[^a]", "[\\]a]", "[^\\]a]", "[a\\-c]", "[-a]", "[a-]", ".", "\\v", "\\f", "\\0"]
CHARS = [chr(c) for c in [*range(128), 0x85, 0xa0, 0xb2, 0xe9, 0x660, 0x1680, 0x180e, 0x2003, 0x200b, 0x2028, 0x2029, 0x202f, 0x3000, 0xfeff, 0x1f600]]


def in_words_of(sets, regex):
    """The class, with the characters that the names in it stand for."""
    def named(m):
        text = sets[m[1].lower()]
        if m[1].isupper():
            text = re.escape("".join(c for c in CHARS if not re.match(f"[{text}]", c)))
        return text if regex.startswith("[") else f"[{text}]"
    return re.sub(r"\\([swdSWD])", named, regex)


def check_classes(judge):
    """Of ASCII what is in a class in all languages, and of the rest nothing that is not."""
    texts = [json.dumps(c, ensure_ascii=False).encode() for c in CHARS]
    for regex in CLASSES:
        judges = [re.compile(form) for form in (regex, in_words_of(ECMA, regex), in_words_of(RE2, regex))]
        message, _, taken = judge.ask(SCHEMA, json.dumps({"type": "string", "pattern": f"^{regex}$"}).encode(), 1, texts=texts)
        judge.check(message is None, f"{regex}: {message}")
        for c, n in zip(CHARS, taken):
            wanted = all(j.fullmatch(c) for j in judges) and not (regex == "." and c in "\r\x85\u2028\u2029")
            judge.check((n == -1) == wanted or (wanted and c > "\x7f"), f"{regex}: {'refuses' if wanted else 'has'} {c!r}")


def check_large(judge):
    for schema, part in LARGE:
        begin = time.monotonic()
        message, _, _ = judge.ask(SCHEMA, json.dumps(schema).encode(), 1)
        judge.check((message is None) if part is None else part in str(message), f"large: {part} is not in: {message}: {json.dumps(schema):.200}")
        took = time.monotonic() - begin
        judge.check(took < 5, f"large: took {took:.1f} s: {json.dumps(schema):.200}")
    peak = f"/proc/{judge.driver.pid}/status"
    if os.path.exists(peak):
        kib = int(re.search(r"VmHWM:\s+(\d+)", open(peak).read()).group(1))
        judge.check(kib < 600 << 10, f"large: the driver needed {kib >> 10} MiB")


def check_objects(judge):
    for vocab in (0, 1, 2):
        _, walks, _ = judge.ask(OBJECT, b"", vocab, 10 * WALKS, vocab)
        for number, text in walks:
            judge.check_walk({"type": "object"}, number, text)


def main():
    judge = Judge()
    for i, (schema, has, lacks) in enumerate(CASES):
        for v in has:
            jsonschema.Draft202012Validator(old_form(schema), format_checker=CHECKER).validate(v)  # of this table itself
        judge.compare(schema, has, lacks, seed=i)
    for schema, part in REFUSED:
        message, _, _ = judge.ask(SCHEMA, json.dumps(schema).encode(), 1)
        judge.check(message is not None and part in message, f"{json.dumps(schema)}: {part} is not in: {message}")
    check_grammars(judge)
    check_objects(judge)
    check_classes(judge)
    check_large(judge)
    for seed in range(GENERATED):
        writer = Writer(seed)
        schema, make = writer.make(3)
        has = [make() for _ in range(3)]
        for v in has:
            jsonschema.Draft202012Validator(schema, format_checker=CHECKER).validate(v)
        judge.compare(schema, has, seed=seed, vocabs=(seed % 3,))
    judge.driver.stdin.close()
    judge.check(judge.driver.wait() == 0, "the driver's status")
    judge.check(judge.whole > 10 * judge.cut, f"{judge.whole} walks came to an end, {judge.cut} did not")
    print(f"{judge.whole} whole texts of walks, {judge.cut} cut off")
    print(f"{judge.passed} passed, {judge.failed} failed, 0 skipped")
    return 1 if judge.failed else 0


if __name__ == "__main__":
    sys.exit(main())
