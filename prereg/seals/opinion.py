"""What was found of one seal, in a word and a sentence."""

from __future__ import annotations

from typing import Literal

from prereg.part import Part


class Opinion(Part):
    """What a seal is worth, as far as it can be seen from here."""

    state: Literal["holds", "unvouched", "incomplete", "unchecked", "broken"]
    """`holds`: sound, and made by somebody who is believed here. `unvouched`: sound as far as that can be said of a
    seal by a stranger. `incomplete`: the beginning of a seal, which proves nothing yet. `unchecked`: what is needed
    to look at it is not on this machine. `broken`: not a seal of this lock."""
    says: str
    """What was found, in a clause."""
