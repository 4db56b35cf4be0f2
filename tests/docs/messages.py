"""The messages that people meet, as the sources have them: `python -m tests.docs.messages` writes its page anew.

Each call that raises or prints a message is found in the syntax tree, and the text that it may say is put together from
literals, through names and functions of the same module. A value stands as …; what cannot be followed is a fault.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gemini.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/messages.md"
VALUE = "…"
RAISED = (  # whose text is a line for people, wherever it is caught
    "Problem", "DaemonProblem", "NoDaemon", "Conflict", "Unknown", "Forbidden", "Owing", "BadValue", "WrongUse",
    "CannotServe", "BadScenario", "InvalidSpec", "ArgumentTypeError", "CannotReport", "DaemonFault",
)  # fmt: skip
SAID = ("_warn", "print_line", "_tell")  # notices
FINDINGS = ("FAIL", "WARN")  # of gemini check: `yield FAIL, text`
PASSED_ON = re.compile(rf"(?:\S+ )?(?:\S+: )?{VALUE}")  # the text of an error that is in the list itself
PARTS = (  # of the page, by what the paths of their sources begin with
    ("commands", ("gemini/cli/", "gemini/api.py", "gemini/units.py", "gemini/advise.py", "gemini/cdi.py")),
    ("daemon", ("scheduler_backend/",)),
    ("cluster", ("gemini/",)),
)
LEVELS = ("warning", "error", "exception")
C_LINE = re.compile(r'log_line\(\s*LOG_(?:ERROR|WARN),\s*((?:"(?:[^"\\]|\\.)*"\s*)+)')
FORMAT = re.compile(r"%[-.\d]*(?:llu|llx|[a-zA-Z])")
MOST = 24  # variants of one call


@dataclass(frozen=True)
class Message:
    path: str
    line: int
    text: str
    kind: str  # refused, said, found or refused pod
    faults: tuple[str, ...] = ()  # of its values: what shows a private name or raw bytes


class Source:
    """One module, and the texts that its expressions may be."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tree = ast.parse(path.read_text())
        self.functions = {
            n.name: n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        self.home: dict[ast.AST, ast.AST] = {}  # the function that an expression is in
        for function in self.functions.values():
            for inner in ast.walk(function):
                self.home.setdefault(inner, function)
        for function in sorted(self.functions.values(), key=lambda f: f.lineno):  # the innermost
            self.home.update(dict.fromkeys(ast.walk(function), function))

    def texts(self, node: ast.expr, depth: int = 0) -> list[str]:
        """All that it may say; a value is …"""
        match node:
            case ast.Constant(value=str(text)):
                return [text]
            case ast.Constant(value=None):
                return [""]
            case ast.JoinedStr(values=parts):
                return _joined([self.texts(part, depth + 1) for part in parts])
            case ast.FormattedValue(value=value):
                found = self.texts(value, depth + 1) if isinstance(value, ast.IfExp | ast.Name) else [VALUE]
                return found if all(found) or len(found) > 1 else [VALUE]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return _joined([self.texts(left, depth + 1), self.texts(right, depth + 1)])
            case ast.IfExp(body=body, orelse=other):
                return self.texts(body, depth + 1) + self.texts(other, depth + 1)
            case ast.BoolOp(values=values):
                return [text for value in values for text in self.texts(value, depth + 1)]
            case ast.Name(id=name) if depth < 6:
                return self._named(node, name, depth) or [VALUE]
            case ast.Call(func=ast.Name(id=name)) if name in self.functions and depth < 6:
                return self._returned(name, depth) or [VALUE]
        return [VALUE]

    def _named(self, node: ast.Name, name: str, depth: int) -> list[str]:
        where = self.home.get(node, self.tree)
        found = []
        for one in ast.walk(where):
            if isinstance(one, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in one.targets):
                found += [] if ast.unparse(one.value) == "None" else self.texts(one.value, depth + 1)
        return list(dict.fromkeys(found))

    def _returned(self, name: str, depth: int) -> list[str]:
        found = []
        for one in ast.walk(self.functions[name]):
            if isinstance(one, ast.Return) and one.value is not None:
                found += self.texts(one.value, depth + 1)
        return list(dict.fromkeys(found))

    def messages(self) -> Iterator[Message]:
        """Those of this module, in the order of its lines."""
        for node in ast.walk(self.tree):
            kind, argument = _message(node)
            if argument is None:
                continue
            texts = self.texts(argument)[:MOST]
            for text in [one for one in texts if not one.rstrip().endswith(";")] or texts:
                yield Message(
                    str(self.path.relative_to(ROOT)), node.lineno, _tidy(text), kind, tuple(_faults(argument))
                )


def _joined(parts: Sequence[list[str]]) -> list[str]:
    whole = [""]
    for part in parts:
        whole = [one + text for one in whole for text in (part or [VALUE])][:MOST]
    return whole


def _tidy(text: str) -> str:
    return re.sub(rf"{VALUE}(?:{VALUE})+", VALUE, " ".join(text.split())).removeprefix("gemini:").strip()


def _message(node: ast.AST) -> tuple[str, ast.expr | None]:
    """What kind of message a node says, and its text."""
    if isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple):
        first = node.value.elts[0]
        if isinstance(first, ast.Name) and first.id in FINDINGS:
            return "found", node.value.elts[1]
    if not isinstance(node, ast.Call):
        return "", None
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name == "InvalidPod" and len(node.args) > 1:
        return "refused pod", node.args[1]
    if name in RAISED and node.args:
        return "refused", node.args[0]
    if name in SAID and node.args:
        return "said", node.args[0]
    if (
        name == "print"
        and node.args
        and any(word.arg == "file" and ast.unparse(word.value) == "sys.stderr" for word in node.keywords)
    ):
        return "said", node.args[0]
    return "", None


def _faults(argument: ast.expr) -> Iterator[str]:
    """Values that show what nobody outside of the code knows, or a number without its unit."""
    parts = [(part, behind) for whole in ast.walk(argument) if isinstance(whole, ast.JoinedStr)
             for part, behind in zip(whole.values, [*whole.values[1:], None], strict=True)]  # fmt: skip
    for node, behind in parts:
        if not isinstance(node, ast.FormattedValue):
            continue
        unit = isinstance(behind, ast.Constant) and str(behind.value).startswith((" bytes", " ns"))
        shown = ast.unparse(node.value)
        if "__name__" in shown:
            yield f"{shown} is the name of a class"
        if node.conversion == ord("r") and re.search(r"\b(error|problem|fault|exc)\b", shown):
            yield f"{shown} stands as an object"
        if re.fullmatch(r"[\w.]*_(bytes|ns|ppm)", shown) and not unit:
            yield f"{shown} has no unit"


def collected() -> list[Message]:
    """All of the tree."""
    found = []
    for folder in ("gemini", "scheduler_backend"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "simulation" not in path.parts:
                found += list(Source(path).messages())
    return found


def passed_on(message: Message) -> bool:
    """Does it say another error's text, which has its own place?"""
    return re.search(r"[a-z]{3}", message.text) is None or PASSED_ON.fullmatch(message.text) is not None


def part_of(message: Message) -> str:
    """The part of the page that it stands in."""
    if message.kind == "refused pod":
        return "pods"
    return next(name for name, starts in PARTS if message.path.startswith(starts))


def listed(part: str) -> str:
    """A part of the page: the messages by what says them."""
    by_source: dict[str, list[str]] = {}
    for message in collected():
        if part_of(message) == part and not passed_on(message):
            lines = by_source.setdefault(_source(message.path), [])
            if message.text not in lines:
                lines.append(message.text)
    shown = []
    for source, texts in sorted(by_source.items()):
        shown += [f"**{source}**", "", *(f"- {_code(text)}" for text in texts), ""]
    return "\n".join(shown).rstrip()


def _code(text: str) -> str:
    return f"`{text}`" if "`" not in text else f"`` {text} ``"


def _source(path: str) -> str:
    module = path.removesuffix(".py").replace("/", ".")
    names = [name for name, (home, _) in COMMANDS.items() if home == module]
    if path.startswith("scheduler_backend/"):
        parts = {"config": "its file", "readers": "its file", "trace": "its trace", "users": "bounds of a user"}
        return parts.get(Path(path).stem, "itself")
    if path == "gemini/api.py":
        return "gemini.share and its kin, in Python"
    if path.startswith("gemini/kube/"):
        return "annotations and resources"
    if not names:
        names = [name for name, (home, _) in COMMANDS.items() if Path(path).parts[1] in (name, home.rpartition(".")[2])]
    names = names or {"plugin": ["device-plugin"], "cli": []}.get(Path(path).parts[1], [])
    if Path(path).name.startswith("scenario"):
        names = ["place"]
    return "gemini " + ", ".join(names) if names else "several"


def library_lines() -> list[str]:
    """What the library writes to a program's stderr, warnings and errors."""
    found = []
    for path in sorted((ROOT / "libhook").rglob("*.c")):
        for quoted in C_LINE.findall(path.read_text()):
            text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', quoted))
            found.append(re.sub(rf"{VALUE}[.]?", VALUE, FORMAT.sub(VALUE, text)))
    return found


def events(*folders: str) -> dict[str, tuple[str, str]]:
    """Warnings and errors in logs: event -> where it is, and its template."""
    found = {}
    for path in (one for folder in folders for one in sorted((ROOT / folder).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS
                and isinstance(node.func.value, ast.Name) and node.func.value.id == "log"
            ):  # fmt: skip
                template = node.args[0].value if isinstance(node.args[0], ast.Constant) else VALUE
                if template != "%s":
                    found[template.split()[0]] = (f"{path.relative_to(ROOT)}:{node.lineno}", template)
    return found


def renewed(text: str) -> str:
    """The page with its lists as the sources have them."""
    for part in ("commands", "daemon", "cluster", "pods", "library"):
        lines = "\n".join(f"- {_code(line)}" for line in library_lines()) if part == "library" else listed(part)
        pattern = re.compile(rf"(<!-- {part}: begin -->\n).*?(<!-- {part}: end -->)", re.S)
        text, count = pattern.subn(lambda found, lines=lines: f"{found[1]}{lines}\n{found[2]}", text)
        if count != 1:
            raise SystemExit(f"{PAGE} has {count} parts named {part}; it needs one")
    return text


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
