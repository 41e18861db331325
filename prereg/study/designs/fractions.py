"""Two-level fractional factorials: which combinations of parts are run, and which effects are aliased.

A fraction of 2^k combinations follows from generators, such as D = ABC: part D is present where the product of the
signs of A, B and C says so, with + for present and - for absent. Words of the defining relation are the products of
parts that are the same in every run; two effects whose product is such a word are aliased: one contrast estimates
their sum. The resolution is the length of the shortest word (Box and Hunter 1961).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

Effect = tuple[str, ...]
"""Parts whose product an effect is: one part for its main effect, two for an interaction."""

MOST_SEARCHED = 11
"""Parts for which generators are searched for."""
_MOST_TRIED = 20_000


@dataclass(frozen=True)
class Fraction:
    """A fraction by its generators, each (generated part, parts of its product, sign); none: the full factorial."""

    parts: tuple[str, ...]
    generators: tuple[tuple[str, Effect, int], ...] = ()

    @property
    def free(self) -> tuple[str, ...]:
        """Parts that no generator sets."""
        generated = {part for part, _, _ in self.generators}
        return tuple(part for part in self.parts if part not in generated)

    def runs(self) -> Iterator[frozenset[str]]:
        """The parts that are present, combination by combination, in standard order: the first part changes fastest."""
        free = self.free
        for number in range(2 ** len(free)):
            present = {part for at, part in enumerate(free) if number >> at & 1}
            for part, product, sign in self.generators:
                if sign * sign_of(product, present) > 0:
                    present.add(part)
            yield frozenset(present)

    def words(self) -> dict[frozenset[str], int]:
        """The defining relation: every product of parts that is the same in all runs, with its sign."""
        found: dict[frozenset[str], int] = {frozenset(): 1}
        for part, product, sign in self.generators:
            word = frozenset((part, *product))
            found |= {word ^ other: sign * one for other, one in found.items()}
        del found[frozenset()]
        return found

    @property
    def resolution(self) -> int | None:
        """Length of the shortest word; none of a full factorial."""
        return min(map(len, self.words()), default=None)

    def aliases(self, effect: Effect) -> dict[Effect, int]:
        """The effects that the contrast of `effect` estimates too, each with its sign, lowest order first."""
        found = {self._named(word ^ set(effect)): sign for word, sign in self.words().items()}
        return dict(sorted(found.items(), key=lambda one: (len(one[0]), [self.parts.index(part) for part in one[0]])))

    def _named(self, parts: frozenset[str]) -> Effect:
        return tuple(part for part in self.parts if part in parts)

    def text(self) -> str:
        """`2^(4-1), resolution IV`; `2^3` for a full factorial."""
        if self.resolution is None:
            return f"2^{len(self.parts)}"
        return f"2^({len(self.parts)}-{len(self.generators)}), resolution {roman(self.resolution)}"


def sign_of(product: Effect, present: frozenset[str] | set[str]) -> int:
    """The product of the signs of some parts in one run: + for present, - for absent."""
    return -1 if sum(part not in present for part in product) % 2 else 1


def roman(resolution: int) -> str:
    """The resolution as it is customarily written."""
    return ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X")[resolution]


def generator_text(product: Sequence[str], sign: int) -> str:
    """`rotary*swiglu`, or `-rotary*swiglu`."""
    return "-" * (sign < 0) + "*".join(product)


@lru_cache(maxsize=64)
def smallest_fraction(parts: tuple[str, ...], resolution: int) -> Fraction | None:
    """The fraction of fewest runs with at least this resolution; none where only the full factorial has it.

    Of those of one size the one with the least aberration (Fries and Hunter 1980) among the first 20,000 that are
    tried: as few of the shortest words as can be.
    """
    for n_free in range(2, len(parts)):
        masks = _least_aberration(n_free, len(parts) - n_free, resolution)
        if masks is not None:
            free = parts[:n_free]
            products = [tuple(part for at, part in enumerate(free) if mask >> at & 1) for mask in masks]
            generators = tuple((part, product, 1) for part, product in zip(parts[n_free:], products, strict=True))
            return Fraction(parts, generators)
    return None


def _least_aberration(n_free: int, n_generated: int, resolution: int) -> tuple[int, ...] | None:
    """Bit masks over the free parts, one for each generated part."""
    sizes = range(resolution - 1, n_free + 1)
    masks = [sum(1 << at for at in chosen) for size in sizes for chosen in combinations(range(n_free), size)]
    best: tuple[list[int], tuple[int, ...]] | None = None
    tried = 0
    stack: list[tuple[tuple[int, ...], int, list[int]]] = [((), 0, [0])]
    while stack and tried < _MOST_TRIED:
        chosen, start, words = stack.pop()
        if len(chosen) == n_generated:
            tried += 1
            lengths = [word.bit_count() for word in words[1:]]
            pattern = [lengths.count(length) for length in range(n_free + n_generated + 1)]
            if best is None or pattern < best[0]:
                best = pattern, chosen
            continue
        for at in reversed(range(start, len(masks))):
            word = masks[at] | 1 << (n_free + len(chosen))
            new = [word ^ other for other in words]
            if all(one.bit_count() >= resolution for one in new):
                stack.append(((*chosen, masks[at]), at + 1, words + new))
    return None if best is None else best[1]


def read_generators(parts: Sequence[str], written: Mapping[str, str]) -> Fraction:
    """The fraction of generators as a study writes them: {dropout: rotary*swiglu}. Raises `ValueError` in words."""
    found = []
    for part, text in written.items():
        product = tuple(one.strip() for one in text.removeprefix("-").split("*"))
        unknown = [one for one in (part, *product) if one not in parts]
        if unknown:
            raise ValueError(f"'{unknown[0]}' is not a part")
        if len(product) < 2 or len(set(product)) < len(product):
            raise ValueError(f"'{text}' is not a product of different parts")
        generated = [one for one in product if one in written]
        if generated:
            raise ValueError(f"'{text}' names '{generated[0]}', which is generated itself")
        found.append((part, tuple(sorted(product, key=list(parts).index)), -1 if text.startswith("-") else 1))
    fraction = Fraction(tuple(parts), tuple(found))
    if fraction.resolution is not None and fraction.resolution < 3:
        word = min(fraction.words(), key=len)
        raise ValueError(f"the main effects of {' and '.join(one for one in parts if one in word)} are aliased")
    return fraction
