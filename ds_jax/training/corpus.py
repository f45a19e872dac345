"""Prose and code for training and evaluation, from public packages.

Decides which packages, which files in them, and how they become documents; every download must have
the recorded sha256. Never downloads unless `build` is called. In: an output folder. Out: one
`<name>.jsonl` per source in that folder, one document a line (`{"text": ...}`).
"""

from __future__ import annotations

import hashlib
import io
import json
import pathlib
import random
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from typing import Any

from ds_jax import errors

_SOURCES = pathlib.Path(__file__).with_name("corpus_sources.json")
_SKIPPED_FOLDERS = {"test", "tests", "site-packages", "dist-packages", "idlelib", "turtledemo"}
_SKIPPED_FOLDERS |= {"__pycache__", "pydoc_data"}
_GLOSSES_PER_DOCUMENT = 12


def sources() -> dict[str, dict[str, Any]]:
    """The committed list of sources: where from, which hash, which licence, what for."""
    return json.loads(_SOURCES.read_text())


def build(out_dir: str | pathlib.Path, *, check_stdlib: bool = True) -> dict[str, int]:
    """Downloads, checks and extracts every source; downloads that are there already are reused.

    Args:
      out_dir: folder for downloads and documents; created if missing.
      check_stdlib: refuse a standard library whose text differs from the recorded one.

    Returns:
      Bytes of text per source.

    Raises:
      ConfigError: a download failed or its content is not the recorded one.
    """
    folder = pathlib.Path(out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {}
    for name, source in sources().items():
        documents = list(_documents(name, source, folder))
        if source["get"] == "python" and check_stdlib:
            _check_text(source, documents)
        with open(folder / f"{name}.jsonl", "w", encoding="utf-8") as out:
            for text in documents:
                out.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
        sizes[name] = sum(len(text.encode()) for text in documents)
    return sizes


def read(corpus_dir: str | pathlib.Path, name: str) -> list[str]:
    """The documents of one source, in their stored order."""
    path = pathlib.Path(corpus_dir) / f"{name}.jsonl"
    if not path.exists():
        raise errors.ConfigError(
            f"{path} does not exist; build the corpus into {corpus_dir} first, sources: "
            f"{', '.join(sources())}"
        )
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


def _documents(name: str, source: dict[str, Any], folder: pathlib.Path) -> Iterator[str]:
    match source["get"]:
        case "pip":
            download = _download(source, folder)
            yield from _tar_documents(download.read_bytes(), source["members"])
        case "apt":
            download = _download(source, folder)
            data = subprocess.run(
                ["dpkg-deb", "--fsys-tarfile", str(download)], check=True, capture_output=True
            ).stdout
            yield from _gloss_documents(_tar_documents(data, source["members"]))
        case "python":
            yield from _stdlib_documents()
        case other:
            raise errors.ConfigError(
                f'source "{name}": get is "{other}"; allowed are "pip", "apt" and "python"'
            )


def _download(source: dict[str, Any], folder: pathlib.Path) -> pathlib.Path:
    path = folder / source["file"]
    if not path.exists():
        if source["get"] == "pip":
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            command += ["--no-binary=:all:", "--dest=.", source["requirement"]]
        else:
            command = ["apt-get", "download", source["requirement"]]
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if result.returncode or not path.exists():
            raise errors.ConfigError(
                f"{' '.join(command)} did not give {source['file']}: {result.stderr[-500:]}; "
                f"put the file into {folder} by other means"
            )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != source["sha256"]:
        raise errors.ConfigError(
            f"{path}: sha256 is {digest}, expected {source['sha256']}; delete the file and try "
            "again"
        )
    return path


def _tar_documents(archive_bytes: bytes, members: str) -> Iterator[str]:
    pattern = re.compile(rf"(\./)?{members}")
    with tarfile.open(fileobj=io.BytesIO(archive_bytes)) as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            if member.isfile() and pattern.fullmatch(member.name):
                file = archive.extractfile(member)
                assert file is not None, "a regular member has content"
                yield file.read().decode("utf-8", errors="replace")


def _gloss_documents(files: Iterator[str]) -> Iterator[str]:
    """Definitions in one stable random order, a dozen to a document."""
    glosses = []
    for text in files:
        for line in text.splitlines():
            if line.startswith(" ") or " | " not in line:  # the licence and empty lines
                continue
            entry, gloss = line.split(" | ", 1)
            word = re.sub(r"\(\w+\)$", "", entry.split()[4]).replace("_", " ")
            glosses.append(f"{word}: {gloss.strip()}")
    random.Random(0).shuffle(glosses)
    for start in range(0, len(glosses), _GLOSSES_PER_DOCUMENT):
        yield "\n".join(glosses[start : start + _GLOSSES_PER_DOCUMENT]) + "\n"


def _stdlib_documents() -> Iterator[str]:
    root = pathlib.Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        folders = path.relative_to(root).parts[:-1]
        if not _SKIPPED_FOLDERS.intersection(folders) and not path.name.startswith(
            "_sysconfigdata"
        ):
            yield path.read_text(encoding="utf-8", errors="replace")


def _check_text(source: dict[str, Any], documents: list[str]) -> None:
    digest = hashlib.sha256("\0".join(documents).encode()).hexdigest()
    if digest != source["text_sha256"]:
        version = ".".join(map(str, sys.version_info[:3]))
        raise errors.ConfigError(
            f"the standard library of python {version} has text sha256 {digest}, expected "
            f"{source['text_sha256']} ({source['requirement']}); run that version, or accept "
            "another one with check_stdlib=False (the corpus is then not the recorded one)"
        )


def main(arguments: list[str]) -> None:
    """`OUT_DIR`: builds the corpus there and prints its sizes."""
    if len(arguments) != 1:
        raise SystemExit("give one argument: the folder to build the corpus in")
    for name, size in build(arguments[0]).items():
        print(f"{name}: {size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
