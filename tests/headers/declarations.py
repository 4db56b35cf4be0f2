"""What a C header declares, in a form in which two headers can be compared: prototypes, layouts, enumerators.

Types are spelt by what they are in memory, x86-64 Linux: `u8` whether it was written size_t, uint64_t or CUdeviceptr,
`i4` for an enumeration as for an int. A structure is spelt by its name, without `_st` and version, and its size.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pycparser import c_ast, c_parser

# The first that a type names counts: `long unsigned int` is a long.
SIZES = {"char": 1, "_Bool": 1, "short": 2, "long": 8, "double": 8, "float": 4, "int": 4}


@dataclass
class Declarations:
    """Everything by its name in the header."""

    functions: dict[str, str] = field(default_factory=dict)  # cuInit -> "i4(u4)"
    pointers: dict[str, str] = field(default_factory=dict)  # typedefs of pointers to functions, spelt as functions
    enumerators: dict[str, int] = field(default_factory=dict)  # and macros that are plain numbers
    sizes: dict[str, int] = field(default_factory=dict)  # typedef of a structure or union -> bytes
    # typedef of a structure -> its fields and theirs: "kernel.ctx" -> (offset, size; 0 for what has fields itself)
    fields: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)


def preprocess(source: str, include: Path, *options: str) -> str:
    """gcc's preprocessor over `source`, without the compiler's own extensions."""
    hidden = ["__attribute__(x)=", "__inline=", "__extension__=", "__restrict=", "_Alignas(x)=", "__const=const"]
    command = ["gcc", "-E", "-P", "-xc", f"-I{include}", *options, *(f"-D{word}" for word in hidden), "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout


def declared(source: str, include: Path) -> Declarations:
    reader = _Reader()
    reader.read(c_parser.CParser().parse(preprocess(source, include)))
    macros = re.findall(
        r"^#define (CU\w+) (?:\(\(\w+ ?\*?\) ?)?(-?) ?(?:(0x[0-9a-fA-F]+|\d+)[uU]?|(CU\w+))\)?$",
        preprocess(source, include, "-dM"),
        re.MULTILINE,
    )
    numbers = {name: int(sign + number, 0) for name, sign, number, _ in macros if number}
    numbers |= {name: numbers[other] for name, _, _, other in macros if other in numbers}
    reader.found.enumerators |= numbers
    return reader.found


class _Reader:
    def __init__(self) -> None:
        self.found = Declarations()
        self.typedefs: dict[str, c_ast.Node] = {}
        self.tags: dict[tuple[type, str], c_ast.Node] = {}
        self.called: dict[int, str] = {}  # structures without a tag, by the first name they were given

    def read(self, unit: c_ast.FileAST) -> None:
        for node in unit.ext:
            if isinstance(node, c_ast.Typedef):
                self.learn(node.type)
                self.typedefs[node.name] = node.type
                self.name(node)
            elif isinstance(node, c_ast.Decl):
                self.learn(node.type)
                if isinstance(node.type, c_ast.FuncDecl) and node.name.startswith("cu"):
                    self.found.functions[node.name] = self.spell(node.type)

    def name(self, node: c_ast.Typedef) -> None:
        inner = node.type
        if not node.name.startswith(("CU", "cu", "PFN_cu")):
            return  # the C library's
        if isinstance(inner, c_ast.PtrDecl) and isinstance(inner.type, c_ast.FuncDecl):
            self.found.pointers[node.name] = self.spell(inner.type)
        body = self.body(inner)
        if body is not None and body.decls is not None:
            self.called.setdefault(id(body), body.name or node.name)
            self.found.sizes[node.name] = self.size(inner)[0]
            self.found.fields[node.name] = dict(self.fields(body))

    def learn(self, node: c_ast.Node) -> None:
        """Note what tags and enumerators stand inside of a declaration."""
        if isinstance(node, (c_ast.PtrDecl, c_ast.TypeDecl, c_ast.ArrayDecl, c_ast.FuncDecl)):
            self.learn(node.type)
        elif isinstance(node, (c_ast.Struct, c_ast.Union)) and node.decls is not None:
            if node.name:
                self.tags[type(node), node.name] = node
            for member in node.decls:
                self.learn(member.type)
        elif isinstance(node, c_ast.Enum) and node.values is not None:
            value = -1
            for enumerator in node.values.enumerators:
                value = value + 1 if enumerator.value is None else self.value(enumerator.value)
                self.found.enumerators[enumerator.name] = value

    def value(self, node: c_ast.Node) -> int:
        """A constant expression."""
        if isinstance(node, c_ast.Constant):
            return int(node.value.rstrip("uUlL"), 0)
        if isinstance(node, c_ast.ID):
            return self.found.enumerators[node.name]
        if isinstance(node, c_ast.Cast):
            return self.value(node.expr)
        if isinstance(node, c_ast.UnaryOp):
            if node.op == "sizeof":
                return self.size(node.expr.type)[0]
            return {"-": -1, "+": 1}[node.op] * self.value(node.expr)
        assert isinstance(node, c_ast.BinaryOp), node
        left, right = self.value(node.left), self.value(node.right)
        return {
            "+": left + right,
            "-": left - right,
            "*": left * right,
            "|": left | right,
            "<<": left << max(right, 0),
        }[node.op]

    def body(self, node: c_ast.Node) -> c_ast.Node | None:
        """The structure or union that a type is, or None."""
        while isinstance(node, c_ast.TypeDecl):
            node = node.type
        if isinstance(node, c_ast.IdentifierType) and node.names[0] in self.typedefs:
            return self.body(self.typedefs[node.names[0]])
        if isinstance(node, (c_ast.Struct, c_ast.Union)):
            return self.tags.get((type(node), node.name), node)
        return None

    def size(self, node: c_ast.Node) -> tuple[int, int]:
        """Size and alignment."""
        if isinstance(node, c_ast.PtrDecl):
            return 8, 8
        if isinstance(node, c_ast.ArrayDecl):
            size, alignment = self.size(node.type)
            return size * self.value(node.dim), alignment
        if isinstance(node, (c_ast.TypeDecl, c_ast.Typename)):
            return self.size(node.type)
        if isinstance(node, c_ast.Enum):
            return 4, 4
        if isinstance(node, c_ast.IdentifierType):
            if node.names[0] in self.typedefs:
                return self.size(self.typedefs[node.names[0]])
            size = _base_size(node.names)
            return size, size
        body = self.body(node)
        assert body is not None, node
        assert body.decls is not None, node
        end, alignment = 0, 1
        for _, offset, member in self.members(body):
            size, own = self.size(member.type)
            end, alignment = max(end, offset + size), max(alignment, own)
        return -(-end // alignment) * alignment, alignment

    def members(self, body: c_ast.Node) -> Iterator[tuple[str | None, int, c_ast.Decl]]:
        at = 0
        for member in body.decls:
            size, alignment = self.size(member.type)
            if isinstance(body, c_ast.Struct):
                at = -(-at // alignment) * alignment
            yield member.name, at, member
            if isinstance(body, c_ast.Struct):
                at += size

    def fields(self, body: c_ast.Node, before: str = "", at: int = 0) -> Iterator[tuple[str, tuple[int, int]]]:
        for name, offset, member in self.members(body):
            path = f"{before}{name}" if name else before.rstrip(".")
            inner = self.body(member.type)
            if name:  # a structure's or union's own size does not count: its fields' do
                whole = inner is not None and inner.decls is not None and not isinstance(member.type, c_ast.ArrayDecl)
                yield path, (at + offset, 0 if whole else self.size(member.type)[0])
            if inner is not None and inner.decls is not None:
                yield from self.fields(inner, f"{path}." if path else "", at + offset)

    def spell(self, node: c_ast.Node) -> str:
        if isinstance(node, c_ast.FuncDecl):
            given = [] if node.args is None else [self.spell(argument.type) for argument in node.args.params]
            # that a value given is constant is the callee's own affair
            given = [word if word.endswith("*") else word.removeprefix("const ") for word in given]
            return f"{self.spell(node.type)}({', '.join(given if given != ['void'] else [])})"
        if isinstance(node, c_ast.PtrDecl):
            inner = self.spell(node.type)
            return inner + "*" + "".join(f" {word}" for word in node.quals)
        if isinstance(node, c_ast.ArrayDecl):
            return self.spell(node.type) + "*"  # as an argument
        if isinstance(node, (c_ast.TypeDecl, c_ast.Typename)):
            inner = self.spell(node.type)
            return f"const {inner}" if "const" in node.quals and not inner.startswith("const ") else inner
        if isinstance(node, c_ast.Enum):
            return "i4"
        if isinstance(node, (c_ast.Struct, c_ast.Union)):
            return self.structure(self.body(node), node.name)
        assert isinstance(node, c_ast.IdentifierType), node
        name = node.names[0]
        if name not in self.typedefs:
            return _base(node.names)
        body = self.body(self.typedefs[name])
        return self.structure(body, name) if body is not None else self.spell(self.typedefs[name])

    def structure(self, body: c_ast.Node, name: str) -> str:
        plain = re.sub(r"(_(st|union|v\d))+$", "", body.name or self.called.get(id(body), name))
        return f"{plain}:{self.size(body)[0]}" if body.decls is not None else plain


def _base_size(names: list[str]) -> int:
    return next((size for name, size in SIZES.items() if name in names), 4)


def _base(names: list[str]) -> str:
    if "void" in names:
        return "void"
    kind = "f" if {"float", "double"} & set(names) else "u" if "unsigned" in names or "_Bool" in names else "i"
    return f"{kind}{_base_size(names)}"
