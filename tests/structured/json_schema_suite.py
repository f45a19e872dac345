"""Judges the JSON Schema compiler by JSON-Schema-Test-Suite.

    python -m tests.structured.json_schema_suite FOLDER/tests/draft2020-12

Not part of the tests: the suite is not shipped. An instance is a value, which may be spelled in
more than one way: whole numbers are written in digits, objects in every order of their keys. An
invalid one may be accepted in no spelling, a valid one in at least one. False rejects are counted,
not failed. Formats are enforced here: tests by which they are annotations are counted apart.
"""

from __future__ import annotations

import collections
import itertools
import json
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import Any

from ds_jax import errors, structured

ANNOTATION = "only an annotation by default"


def spellings(value: Any) -> Iterator[str]:
    """Compact JSON of a value."""
    if isinstance(value, dict):
        for order in itertools.permutations(value.items()):
            names = [json.dumps(name, ensure_ascii=False) for name, _ in order]
            for inner in itertools.product(*(list(spellings(each)) for _, each in order)):
                yield "{" + ",".join(map(":".join, zip(names, inner, strict=True))) + "}"
    elif isinstance(value, list):
        for inner in itertools.product(*(list(spellings(each)) for each in value)):
            yield "[" + ",".join(inner) + "]"
    elif isinstance(value, float) and value.is_integer():
        yield str(int(value))
    else:
        yield json.dumps(value, ensure_ascii=False)


def main(folder: str) -> int:
    counts: collections.Counter[str] = collections.Counter()
    reasons: collections.Counter[str] = collections.Counter()
    wrong: list[str] = []
    for path in sorted(pathlib.Path(folder).rglob("*.json")):
        for case in json.loads(path.read_text(encoding="utf-8")):
            counts["schemas"] += 1
            try:
                grammar = structured.compile("json_schema", json.dumps(case["schema"]))
            except errors.RequestError as error:
                counts["schemas refused"] += 1
                counts["texts refused"] += len(case["tests"])
                reasons[reason(str(error))] += 1
                continue
            for test in case["tests"]:
                accepted = any(map(grammar.accepts, spellings(test["data"])))
                verdict = {(True, True): "right accept", (False, False): "right reject"}.get(
                    (test["valid"], accepted),
                    "FALSE ACCEPT" if not test["valid"] else "false reject",
                )
                if verdict == "false reject" and ANNOTATION in test["description"]:
                    counts["enforced format"] += 1
                    continue
                text = json.dumps(test["data"])
                counts[verdict] += 1
                if accepted != test["valid"]:
                    where = f"{path.stem}: {case['description']}: {test['description']}"
                    wrong.append(f"{verdict}: {where}: {text[:60]}")
    for name in sorted(counts):
        print(f"{name}: {counts[name]}")
    print("\nrefused because of")
    for name, count in reasons.most_common():
        print(f"{count:4d} {name}")
    print("\n" + "\n".join(wrong))
    return int(counts["FALSE ACCEPT"] > 0)


def reason(message: str) -> str:
    """The message without what differs from schema to schema."""
    found = re.search(r"the keyword '[^']*'|the format '[^']*'|'\$id'", message)
    return found[0] if found else re.sub(r"#\S*|'[^']*'|\d+", "…", message)[:70]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
