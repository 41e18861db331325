"""Claims about what is told while a model is asked: true counts, time that is about right, nothing of answers."""

from __future__ import annotations

import dataclasses

import pytest
from harness_samples import tiny_model, tokenizer

from ablate.evaluation.harness.adapter import Course, Scorer, Standing

CONTEXT = 32


class Clock:
    """Seconds that pass when told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def window(length: int, mark: int = 0) -> tuple[tuple[int, ...], int]:
    return (mark, *[1] * (length - 1)), 1


def test_requests_count_when_all_their_windows_are_scored() -> None:
    said: list[Standing] = []
    course = Course([0], CONTEXT, said.append, Clock())
    course.next_group()
    one, two, shared = window(5), window(6), window(7)
    # The last request has no tokens, and is answered unasked.
    course.expect(4, [(0, one), (1, shared), (1, two), (2, shared)])
    course.scored([shared])
    course.scored([one, two])
    assert [(each.requests, each.of, each.shots) for each in said] == [(1, 4, 0), (2, 4, 0), (4, 4, 0)]


def test_requests_of_groups_to_come_are_counted_from_the_first_on() -> None:
    said: list[Standing] = []
    course = Course([0, 3], CONTEXT, said.append, Clock())
    for _ in range(2):
        course.next_group()
        course.expect(1, [(0, window(5))])
        course.scored([window(5)])
    assert [(each.requests, each.of, each.shots) for each in said] == [(0, 2, 0), (1, 2, 0), (1, 2, 3), (2, 2, 3)]


def test_time_left_goes_by_tokens_and_by_how_long_prompts_with_examples_will_be() -> None:
    said: list[Standing] = []
    clock = Clock()
    course = Course([0, 3], 20, said.append, clock)
    course.next_group()
    course.expect(2, [(0, window(4)), (1, window(6))])
    assert said[-1].seconds_left is None
    clock.now = 2.0
    course.scored([window(4)])
    # Two seconds for 4 tokens: 6 are left here, and with three examples min(16, 21) + min(24, 21) to come.
    assert said[-1].seconds_left == pytest.approx((6 + 16 + 21) * 2 / 4)
    clock.now = 5.0
    course.scored([window(6)])
    course.next_group()
    course.expect(2, [(0, window(9)), (1, window(11))])
    assert said[-1].seconds_left == pytest.approx(20 * 5 / 10)
    clock.now = 15.0
    course.scored([window(9), window(11)])
    assert said[-1].seconds_left == 0.0 and said[-1].seconds == 15.0


def test_a_scorer_tells_of_every_batch_and_of_no_answer() -> None:
    said: list[Standing] = []
    course = Course([0], CONTEXT, said.append, Clock())
    course.next_group()
    requests = [("", "the cat sat"), ("", "the mat"), ("the ", "cat"), ("", "a"), ("", "the cat sat")]
    Scorer(tiny_model(CONTEXT), CONTEXT, tokenizer(), batch=1, course=course).loglikelihoods(requests)
    counts = [one.requests for one in said]
    assert counts == sorted(counts) and counts[0] == 0 and counts[-1] == 5 and len(counts) == 5
    assert {field.name for field in dataclasses.fields(Standing)} == {
        "shots",
        "requests",
        "of",
        "seconds",
        "seconds_left",
    }
