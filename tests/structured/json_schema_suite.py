"""Judges the JSON Schema compiler by JSON-Schema-Test-Suite.

    python -m tests.structured.json_schema_suite FOLDER/tests/draft2020-12

Not part of the tests: the suite is not shipped. Every instance is written as compact JSON; an
engine may narrow the standard (key order, no exponents), so false rejects are counted, not failed.
Optional tests of formats are counted with the others: formats are enforced here.
"""

from __future__ import annotations

import collections
import json
import pathlib
import re
import sys

from ds_jax import errors, structured


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
                text = json.dumps(test["data"], ensure_ascii=False, separators=(",", ":"))
                verdict = {(True, True): "right accept", (False, False): "right reject"}.get(
                    (test["valid"], accepted := grammar.accepts(text)),
                    "FALSE ACCEPT" if not test["valid"] else "false reject",
                )
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
