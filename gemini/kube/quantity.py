"""Texts of people and of Kubernetes to exact integers: sizes, counts, shares.

Pure. A number never passes through binary floating point: 1 - 0.5 - 0.4 must leave room for 0.1. Every error is a
BadValue whose text is "VALUE what is wrong; how to mend it"; the caller puts the field in front.

Sizes are Kubernetes quantities (4Gi, 512Mi, 4G, 1e9) and the usual 4GiB, 4GB; a part of a byte is rounded up, as
Kubernetes does. Shares (0.3 or 30%) are whole percent, since a card is handed out in 100 slots: a finer share is
refused rather than rounded behind the user's back. (gemini/units.py reads the same for one node, where shares go to
the daemon as floats and need no slots.)
"""

from __future__ import annotations

import re
from fractions import Fraction

from gemini.units import BadValue

MAX_QUANTITY = 2**63 - 1  # Kubernetes keeps quantities in an int64

_NUMBER = r"([+-]?)([0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})"
_QUANTITY = re.compile(_NUMBER + r"(?:([kKMGTPE]i?B?|[numB])|[eE]([+-]?[0-9]{1,2}))?")
_PLAIN = re.compile(_NUMBER)
_POWERS = "kMGTPE"
BILLION = 10**9
_SCALES = {"": BILLION, "n": 1, "u": 10**3, "m": 10**6}  # Kubernetes' suffixes, in billionths, the finest that it knows
_SCALES.update((letter, 1000 ** (i + 1) * BILLION) for i, letter in enumerate(_POWERS))
_SCALES.update((f"{letter.upper()}i", 1024 ** (i + 1) * BILLION) for i, letter in enumerate(_POWERS))


def shown(value: object) -> str:
    """The value as it stands in a message: short, printable, on one line."""
    text = value if isinstance(value, str) else repr(value)
    if not text.strip():
        text = repr(text)
    text = "".join(c if c.isprintable() else "?" for c in text[:61])
    return text if len(text) <= 60 else text[:57] + "..."


def text_of(value: object) -> str:
    """The text of a JSON scalar; numbers by their shortest decimal form, anything else is refused."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return shown(value) if isinstance(value, float) else str(value) if abs(value) < 10**30 else "1e30"
    raise BadValue(f"{shown(value)} is not text; write it as a string")


def parse_quantity(value: object, hint: str = "write a Kubernetes quantity such as 4Gi, 512Mi or 4G") -> Fraction:
    """The exact value of a quantity, of any sign."""
    text = text_of(value)
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise BadValue(f"{shown(value)} is not a quantity; {hint}")
    sign, digits, suffix, exponent = match.groups()
    number = Fraction("0" + digits if digits[0] == "." else digits.rstrip("."))
    if exponent:
        number *= Fraction(10) ** int(exponent)
    elif suffix:
        number *= _scale(suffix, value, hint)
    if number > MAX_QUANTITY:
        raise BadValue(f"{shown(value)} is above {MAX_QUANTITY}, the largest quantity; {hint}")
    return -number if sign == "-" else number


def _scale(suffix: str, value: object, hint: str) -> Fraction:
    """What a suffix stands for, people's own ones (KB, GiB, ki) too."""
    letter, binary = suffix[0], "i" in suffix
    if letter == "K" and not binary and "B" not in suffix:
        raise BadValue(f"{shown(value)} is not a quantity: the suffix is k or Ki; {hint}")
    if letter in "kK":
        letter = "K" if binary else "k"
    return Fraction(_SCALES[f"{letter}i" if binary else letter.removesuffix("B")], BILLION)


def billionths(value: object) -> int:
    """A quantity, none below 0, rounded up; what is none is nothing. Strangers' pods name thousands of them while
    others wait, so this makes no fractions: a third of the time of parse_quantity at most."""
    match = _QUANTITY.fullmatch(value if isinstance(value, str) else str(value))
    if match is None:
        return 0
    sign, digits, suffix, exponent = match.groups()
    scale = 0 if sign == "-" else _SCALES.get(suffix or "", 0)
    whole, _, part = digits.partition(".")
    power = int(exponent or 0) - len(part)
    amount: int = int(whole + part) * scale
    amount = amount * 10**power if power > 0 else -(-amount // 10**-power)
    return amount


_WRAPPING = (0, 1, 2, 3, 6, 9)  # powers of ten by which apimachinery multiplies in one step, whatever comes out


class Kept(int):
    """Billionths of a quantity as Kubernetes' programs keep it, and add it to others.

    Those count in an int64, and what does not fit in becomes another number there: 10P processors, thousandths of which
    are more, count as none, and a pod that asks for them runs on any node. `quick`: a number and its power of ten, as
    long as Kubernetes keeps the quantity so; None: it keeps all digits.
    """

    quick: tuple[int, int] | None

    @classmethod
    def of(cls, amount: int, quick: tuple[int, int] | None) -> Kept:
        made = cls(amount)
        made.quick = quick
        return made

    @classmethod
    def read(cls, value: object) -> Kept:
        """What billionths() reads, as apimachinery's ParseQuantity keeps it."""
        text = value if isinstance(value, str) else str(value)
        amount, match = billionths(text), _QUANTITY.fullmatch(text)
        if match is None or not amount:
            return cls.of(0, (0, 0))
        _, digits, suffix, exponent = match.groups()
        whole, _, part = digits.partition(".")
        whole, power = whole.lstrip("0"), int(exponent or 0)
        if suffix and suffix[1:] == "i":
            power = 10 * (_POWERS.index(suffix[0].replace("K", "k")) + 1)
            few = not part and 14 - len(whole) - 3 * power // 10 >= 0
            return cls.of(amount, (amount // BILLION, 0)) if few else cls.of(min(amount, MAX_QUANTITY * BILLION), None)
        power += {"n": -9, "u": -6, "m": -3}.get(suffix or "", 0)
        power += 3 * (_POWERS.find(suffix) + 1) if suffix else 0
        few = len(whole) + len(part) <= 18 and power - len(part) >= -9
        return cls.of(amount, (int(whole + part), power - len(part)) if few else None)

    def __add__(self, other: int) -> Kept:
        if not isinstance(other, Kept) or not other:
            return self
        if not self:
            return other
        return Kept.of(int(self) + int(other), _quick_sum(self.quick, other.quick))

    __radd__ = __add__

    def counted(self, thousandths: bool = False) -> int:
        """How much it is for Kubernetes: where an int64 has no more room, the lowest bits of it, or nothing."""
        whole = -(-int(self) // (BILLION // 1000 if thousandths else BILLION))
        if whole <= MAX_QUANTITY:
            return whole
        if self.quick is not None and self.quick[1] + 3 * thousandths not in _WRAPPING:
            return 0
        low = whole % 2**64
        return low if low <= MAX_QUANTITY else low - 2**64


def _quick_sum(one: tuple[int, int] | None, other: tuple[int, int] | None) -> tuple[int, int] | None:
    if one is None or other is None:
        return None
    power = min(one[1], other[1])
    parts = [number * 10 ** (of - power) for number, of in (one, other)]
    return (sum(parts), power) if sum(parts) <= MAX_QUANTITY else None


def parse_bytes(value: object) -> int:
    """A size in bytes, at least 1."""
    number = parse_quantity(value, "write a size such as 4Gi, 512Mi or 4G")
    text = text_of(value)
    if number <= 0:
        raise BadValue(f"{shown(value)} is not a size above 0; write a size such as 4Gi, 512Mi or 4G")
    if number < 1 or text.endswith("m"):
        raise BadValue(f"{shown(value)} is less than it looks (m means thousandths); write 512Mi or 512M for megabytes")
    return -(-number.numerator // number.denominator)


def parse_whole(value: object, least: int = 0) -> int:
    """A whole number (an extended resource, a count), at least `least`."""
    number = parse_quantity(value, f"write a whole number of at least {least}")
    if number.denominator != 1:
        raise BadValue(f"{shown(value)} is not a whole number; write a whole number of at least {least}")
    if number < least:
        raise BadValue(f"{shown(value)} is below {least}; write a whole number of at least {least}")
    return int(number)


def parse_decimal(value: object, hint: str) -> Fraction:
    """A plain decimal number or a percentage, exact; 30% is 3/10."""
    text = text_of(value)
    percent = text.endswith("%")
    match = _PLAIN.fullmatch(text[:-1].strip() if percent else text)
    if match is None:
        raise BadValue(f"{shown(value)} is not a number; {hint}")
    sign, digits = match.groups()
    number = Fraction("0" + digits if digits[0] == "." else digits.rstrip("."))
    if percent:
        number /= 100
    return -number if sign == "-" else number


def parse_share(value: object) -> int:
    """A share of a card's time as whole percent, 0 to 100: 0.3 and 30% are 30."""
    hint = "write a share from 0 to 1 such as 0.3 or 30%"
    number = parse_decimal(value, hint)
    if number < 0:
        raise BadValue(f"{shown(value)} is below 0; {hint}")
    if number > 1:
        mend = hint
        if number == int(number) and number <= 16:
            mend = "write a share from 0 to 1, and gemini.io/gpu-count for several cards"
        elif number == int(number) and number <= 100:
            mend = f"write {int(number)}% or {float(number / 100):g}"
        raise BadValue(f"{shown(value)} is above 1; {mend}")
    if (number * 100).denominator != 1:
        below = int(number * 100)
        raise BadValue(f"{shown(value)} is finer than one percent of a card; write {below}% or {below + 1}%")
    return int(number * 100)


def parse_ratio(value: object) -> int:
    """A percentage of a card's memory, 1 to 100: 50 and 50% are 50."""
    text = text_of(value)
    hint = "write whole percent from 1 to 100, such as 50"
    number = parse_decimal(text[:-1] if text.endswith("%") and not text.endswith("%%") else text, hint)
    if number > 100:
        raise BadValue(f"{shown(value)} is above 100; {hint}")
    if number <= 0:
        raise BadValue(f"{shown(value)} is not above 0; {hint}")
    if number.denominator != 1:
        mend = f"write {float(number * 100):g}" if number < 1 and (number * 100).denominator == 1 else hint
        raise BadValue(f"{shown(value)} is not whole percent; {mend}")
    return int(number)


def version_number(version: object) -> int:
    """A resourceVersion, to compare with others of its kind; 0: there is none."""
    return int(version) if isinstance(version, str) and version.isdecimal() else 0
