"""gemini migrate -f DIR --from hami|volcano|kai: manifests of another project's shares, rewritten in gemini.io's keys.

Reads *.yaml, *.yml and *.json below DIR, or one file, or - for standard input, and prints what they become; --write
puts it into the files. Documents without a share keep every byte; those that are rewritten lose comments.
Where one cannot be rewritten, nothing is: docs/migrating.md has a table for each project.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from gemini.cli.problem import Problem

SPELLINGS = {"hami": "hami", "volcano": "volcano.sh", "kai": "kai"}
SUFFIXES = (".yaml", ".yml", ".json")
MOST_VALUES = 1_000_000  # of a document; Kubernetes keeps no object above 1.5 MB
MOST_DEPTH = 100  # of lists and maps in each other; the deepest object of Kubernetes has about twenty
BOUNDARY = re.compile(r"^(?=---(?:\s|$))", re.M)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--file", metavar="DIR", required=True, help="folder, file, or - for standard input")
    parser.add_argument(
        "--from", dest="source", choices=tuple(SPELLINGS), required=True, help="whose keys the manifests have"
    )
    parser.add_argument("--write", action="store_true", help="rewrite the files, instead of printing")


def main(args: argparse.Namespace) -> int:
    if args.file == "-" and args.write:
        raise Problem("--write: standard input is no file; leave it out", status=2)
    read: dict[Path | None, str]
    read = {None: _text(sys.stdin.buffer.read(), "standard input")} if args.file == "-" else _read(Path(args.file))
    made = {
        path: _converted(text, "standard input" if path is None else str(path), SPELLINGS[args.source])
        for path, text in read.items()
    }
    changed = {path: text for path, text in made.items() if text != read[path]}
    if args.write:
        _write({path: text for path, text in changed.items() if path is not None})
        for path in changed:
            print(f"rewrote {path}")
    else:
        sys.stdout.write(_joined(list(made.values())))
    return 0


def _read(path: Path) -> dict[Path | None, str]:
    if path.is_dir():
        files = sorted(one for one in path.rglob("*") if one.suffix in SUFFIXES and one.is_file())
        if not files:
            raise Problem(f"{path}: there is no manifest below it; name a folder with {', '.join(SUFFIXES)}", status=2)
    else:
        files = [path]
    try:
        return {one: _text(one.read_bytes(), str(one)) for one in files}
    except OSError as error:
        raise Problem(f"{error.filename}: {error.strerror}; name a folder of manifests", status=2) from None


def _text(content: bytes, where: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Problem(f"{where}: is no text in UTF-8; write it so") from None


def _converted(text: str, where: str, spelling: str) -> str:
    """A file with what is to be rewritten of it."""
    if where.endswith(".json"):
        try:
            given = json.loads(text)
            json.dumps(given, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            raise Problem(f"{where}: is no JSON: {error}; mend it there") from None
        _expect_bounds(given, where)
        fresh = _rewritten(given, where, spelling)
        return text if fresh is given else json.dumps(fresh, indent=2, ensure_ascii=False) + "\n"
    import yaml

    parts = BOUNDARY.split(text)
    result, line = [], 1
    for part in parts:
        try:
            given = yaml.safe_load(part)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            at = line + (mark.line if mark is not None else 0)
            said = getattr(error, "problem", None) or "it cannot be read"
            raise Problem(f"{where}: line {at}: is no YAML: {said}; mend it, or render a template first") from None
        except (
            ValueError,
            KeyError,
            AttributeError,
            RecursionError,
        ) as error:  # dates, numbers and the like that are none
            said = str(error) or type(error).__name__
            raise Problem(
                f"{where}: document at line {line}: holds a value that cannot be read: {said}; mend it"
            ) from None
        _expect_bounds(given, f"{where}: document at line {line}")
        fresh = _rewritten(given, f"{where}: line {line}", spelling)
        if fresh is not given:
            begin = "---\n" if part.startswith("---") else ""
            part = begin + yaml.safe_dump(fresh, sort_keys=False, allow_unicode=True, width=10_000)
        result.append(part)
        line += part.count("\n") if fresh is given else parts[len(result) - 1].count("\n")
    return "".join(result)


def _expect_bounds(given: Any, where: str) -> None:
    """Refuse what is no document of Kubernetes': it or what aliases make of it has no end, or a key is no text.

    The depth is counted, for Python's own bound on recursion is the process's and may be set to anything.
    """
    left, many = [(given, 1)], 0
    while left:
        one, depth = left.pop()
        many += 1
        if depth > MOST_DEPTH:
            raise Problem(f"{where}: has more than {MOST_DEPTH} lists and maps in each other; write it flatter")
        if many > MOST_VALUES:
            said = f"has more than {MOST_VALUES} values, with what its aliases stand for"
            raise Problem(f"{where}: {said}; write them out, or fewer") from None
        if isinstance(one, dict):
            if (key := next((key for key in one if not isinstance(key, str)), None)) is not None:
                raise Problem(f"{where}: the key {key!r} is no text; write it in quotes") from None
            left += ((inner, depth + 1) for inner in one.values())
        elif isinstance(one, list):
            left += ((inner, depth + 1) for inner in one)


def _rewritten(given: Any, where: str, spelling: str) -> Any:
    from gemini.kube.migrate import rewritten
    from gemini.kube.spelling import InvalidPod

    try:
        return rewritten(given, spelling)
    except InvalidPod as error:
        metadata = given.get("metadata") if isinstance(given, dict) else None
        name = f"{given.get('kind')} {metadata.get('name')}" if isinstance(metadata, dict) else "the object"
        raise Problem(f"{where}: {name}: {error}; nothing was rewritten") from None


def _joined(texts: list[str]) -> str:
    """One stream of documents."""
    result = ""
    for text in texts:
        if result and not result.endswith("\n"):
            result += "\n"
        if result and not text.startswith("---"):
            result += "---\n"
        result += text
    return result


def _write(changed: dict[Path, str]) -> None:
    """All of them, or none: each is written beside the old one first."""
    ready: list[tuple[str, Path]] = []
    try:
        for path, text in changed.items():
            number, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            ready.append((beside, path))
            with os.fdopen(number, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(beside, path.stat().st_mode & 0o7777)
        for beside, path in ready:
            os.replace(beside, path)
    except OSError as error:
        for beside, _ in ready:
            Path(beside).unlink(missing_ok=True)
        raise Problem(f"{error.filename}: {error.strerror}; write where you may, or leave --write out") from None
