"""Toy corpus (`toy`): text from a word-level Markov chain that is written down here, and its exact entropy rate.

Each state is one word with the mark that follows it (a space, or a full stop and a line break), and no two
states are spelled alike, so a text determines its path through the chain. The entropy rate a character is then
the chain's entropy rate a word over the mean length of a word under the stationary distribution (Cover and
Thomas 2006, ch. 4, with the renewal-reward theorem for the length): no model can go below it on average.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

CHARACTERS = 1_100_000
"""The text ends with the first line that reaches so many."""
LENGTH = 1_100_008
"""Characters of the text, each of one byte: known without walking the chain, as `ablate check` needs it."""
TOY_SEED = 20

# state: successors with integer weights. States are written with '_' for the space and '.' for ".\n".
_CHAIN = """
the_: cat_ 6, dog_ 6, old_ 3, small_ 3, river_ 4, garden_ 3, king_ 2, ship_ 2, moon_ 2, baker_ 3, red_ 2
a_: cat_ 4, dog_ 4, small_ 4, red_ 3, letter_ 3, song_ 3, bird_ 4, baker_ 2, stone_ 2
old_: king_ 4, dog_ 3, baker_ 3, ship_ 3, garden_ 2, stone_ 1
small_: bird_ 5, cat_ 3, ship_ 2, song_ 1, stone_ 3, red_ 1
red_: bird_ 3, ship_ 3, stone_ 2, garden_ 1, letter_ 2
cat_: sees_ 4, follows_ 3, sleeps_ 4, and_ 2, runs_ 3, waits_ 2
dog_: sees_ 3, follows_ 4, sleeps_ 3, and_ 2, runs_ 4, barks_ 3
king_: sees_ 2, reads_ 4, waits_ 3, sleeps_ 2, and_ 2, sings_ 1
baker_: reads_ 2, sings_ 4, sees_ 2, waits_ 2, carries_ 4, and_ 1
bird_: sings_ 6, sees_ 2, sleeps_ 1, follows_ 2, and_ 1
ship_: waits_ 3, follows_ 3, carries_ 5, in_ 2
moon_: waits_ 2, follows_ 3, and_ 1, sleeps_ 1
river_: runs_ 4, carries_ 4, and_ 2, follows_ 1
garden_: sleeps_ 3, waits_ 3, and_ 2, in_ 1
stone_: waits_ 4, sleeps_ 2, in_ 3
letter_: waits_ 3, in_ 3, and_ 1
song_: follows_ 3, in_ 2, and_ 2
sees_: the_ 8, a_ 6, nothing. 2
follows_: the_ 9, a_ 4, nobody. 1
carries_: a_ 6, the_ 4, bread. 4, water. 3
reads_: a_ 5, the_ 3, slowly. 3
sings_: in_ 4, slowly. 3, and_ 3, again. 3, to_ 3
sleeps_: in_ 5, again. 3, under_ 4, and_ 2
runs_: to_ 5, under_ 3, again. 2, and_ 2, away. 4
waits_: in_ 4, under_ 3, for_ 6, again. 2
barks_: at_ 6, again. 3, and_ 2
and_: sings_ 2, sleeps_ 2, runs_ 2, waits_ 2, the_ 5, a_ 3
in_: the_ 8, a_ 2, winter. 4, summer. 4
to_: the_ 8, a_ 3, town. 4
under_: the_ 7, a_ 3
for_: the_ 5, a_ 4, winter. 2, bread. 3, rain. 2
at_: the_ 7, a_ 3, night. 3
then_: the_ 8, a_ 4, nobody_ 1
nobody_: sees_ 4, sings_ 2, waits_ 3, sleeps_ 2
nothing.: the_ 7, a_ 4, then_ 2
nobody.: the_ 6, a_ 4, then_ 3
bread.: the_ 8, a_ 3, then_ 3
water.: the_ 6, a_ 5, then_ 2
slowly.: the_ 7, then_ 4, a_ 2
again.: the_ 7, then_ 3, a_ 3
away.: the_ 6, nobody_ 1, then_ 4, a_ 2
winter.: the_ 8, a_ 4, nobody_ 1
summer.: the_ 7, a_ 5, then_ 1
town.: the_ 6, a_ 3, then_ 3
rain.: the_ 7, a_ 3, nobody_ 2
night.: the_ 6, a_ 3, nobody_ 3, then_ 1
"""


def alphabet() -> frozenset[str]:
    """The characters of the text.

    >>> len(alphabet())
    25
    """
    return frozenset("".join(map(_spelled, (line.split(": ")[0] for line in _CHAIN.strip().splitlines()))))


def _spelled(name: str) -> str:
    return name.replace("_", " ") if name.endswith("_") else name + "\n"


@cache
def chain() -> tuple[tuple[str, ...], np.ndarray]:
    """The words as they are spelled, and the integer weights of their successors.

    >>> words, weights = chain()
    >>> words[0], int(weights[0].sum())  # what follows "the ", in 36 parts
    ('the ', 36)
    """
    import numpy as np

    rows = [line.split(": ") for line in _CHAIN.strip().splitlines()]
    names = [name for name, _ in rows]
    weights = np.zeros((len(names), len(names)), dtype=np.int64)
    for index, (_, successors) in enumerate(rows):
        for successor in successors.split(", "):
            word, weight = successor.rsplit(" ", 1)
            weights[index, names.index(word)] = int(weight)
    return tuple(map(_spelled, names)), weights


@cache
def entropy_rate() -> float:
    """Nats a character that no model can go below on average: stationary entropy a word / mean word length.

    >>> round(entropy_rate(), 4)
    0.3124
    """
    import numpy as np

    words, weights = chain()
    transition = weights / weights.sum(axis=1, keepdims=True)
    size = len(words)
    # stationary: pi (P - I) = 0 with sum one
    system = np.vstack([transition.T - np.eye(size), np.ones(size)])
    stationary, *_ = np.linalg.lstsq(system, np.append(np.zeros(size), 1.0), rcond=None)
    logs = np.where(transition > 0, np.log(np.where(transition > 0, transition, 1.0)), 0.0)  # 0 log 0 counts as 0
    nats_a_word = -float(stationary @ (transition * logs).sum(axis=1))
    characters_a_word = float(stationary @ np.array([len(word) for word in words]))
    return nats_a_word / characters_a_word


@cache
def text() -> str:
    """The corpus: the chain walked from its first state until the length is reached. The same on every machine.

    >>> text()[:20]
    'the river runs away.'
    """
    import numpy as np

    from ablate.gpt.streams import raw_words

    words, weights = chain()
    # Each successor as often as its weight.
    tables = [np.repeat(np.arange(len(words)), row).tolist() for row in weights]
    draws = raw_words(TOY_SEED, "toy", CHARACTERS // 4)  # a word has more than four characters on average
    state, length, walked = 0, 0, []
    for draw in draws:
        walked.append(words[state])
        length += len(words[state])
        if length >= CHARACTERS and words[state].endswith("\n"):
            break
        successors = tables[state]
        # A uniform word of 64 bits times a length, the high half: `streams.draw_below` with Python's integers. No
        # float, so that no machine rounds otherwise.
        state = successors[(draw * len(successors)) >> 64]
    assert length >= CHARACTERS, length
    return "".join(walked)
