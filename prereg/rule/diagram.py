"""Decision diagrams: exact reasoning over all combinations of outcomes, for the proof that a rule is complete.

A rule over h hypotheses and v variants has 3^h x 2^v cases, too many to list from a dozen names on. A
decision diagram (Bryant 1986; Srinivasan et al. 1990 for more than two values) shares equal sub-cases,
so that "does a case remain?", "which?" and "how many?" are answered exactly without listing them.
This module knows numbers only; names and words are `prereg.rule.rule`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

FALSE, TRUE = 0, 1


class TooLargeError(Exception):
    """The diagram grew past its limit; the caller says it in words."""


class Diagrams:
    """Diagrams over variables 0..n-1, where variable i has `arities[i]` values. A diagram is an int.

    >>> diagrams = Diagrams((3, 2))
    >>> either = diagrams.either(diagrams.among(0, {0}), diagrams.among(1, {1}))
    >>> diagrams.count(either), diagrams.example(diagrams.denied(either))
    (4, {0: 1, 1: 0})
    """

    def __init__(self, arities: tuple[int, ...], limit: int = 50_000) -> None:
        self.arities = arities
        self.limit = limit
        end = len(arities)
        # A node is (variable, child for each of its values); nodes 0 and 1 are FALSE and TRUE, below the last variable.
        self._nodes: list[tuple[int, tuple[int, ...]]] = [(end, ()), (end, ())]
        # The same node is made once, so two diagrams are equal exactly where their numbers are.
        self._numbers: dict[tuple[int, tuple[int, ...]], int] = {}
        self._joined: dict[tuple[bool, int, int], int] = {}
        self._denied: dict[int, int] = {FALSE: TRUE, TRUE: FALSE}

    def among(self, variable: int, values: Collection[int]) -> int:
        """The variable has one of the values."""
        return self._node(variable, tuple(TRUE if v in values else FALSE for v in range(self.arities[variable])))

    def both(self, left: int, right: int) -> int:
        """Conjunction."""
        return self._join(True, left, right)

    def either(self, left: int, right: int) -> int:
        """Disjunction."""
        return self._join(False, left, right)

    def denied(self, diagram: int) -> int:
        """Negation."""
        if diagram not in self._denied:
            level, children = self._nodes[diagram]
            self._denied[diagram] = self._node(level, tuple(self.denied(child) for child in children))
        return self._denied[diagram]

    def meets(self, diagram: int, within: Mapping[int, Collection[int]]) -> bool:
        """Whether the diagram is true for some case in which each variable has one of the values listed for it, any
        value where none are. No diagram is made, so that any number of such questions can be answered."""
        if not all(within.values()):
            return False  # a variable without a value leaves no case, whether or not the diagram looks at it
        answers: dict[int, bool] = {FALSE: False, TRUE: True}

        def below(node: int) -> bool:
            if node not in answers:
                level, children = self._nodes[node]
                # Only along values that are allowed; each node is answered once, so the time is that of
                # the diagram's size.
                values = within.get(level, range(self.arities[level]))
                answers[node] = any(below(children[value]) for value in values)
            return answers[node]

        return below(diagram)

    def count(self, diagram: int) -> int:
        """Number of cases for which the diagram is true.

        >>> diagrams = Diagrams((3, 2))
        >>> first, second = diagrams.among(0, [0]), diagrams.among(1, [1])
        >>> diagrams.count(diagrams.both(first, second)), diagrams.count(diagrams.either(first, second))
        (1, 4)
        """
        counted: dict[int, int] = {FALSE: 0, TRUE: 1}

        def below(node: int) -> int:
            """Cases over the variables from the node's own level on."""
            if node not in counted:
                level, children = self._nodes[node]
                counted[node] = sum(below(child) * self._skipped(level + 1, child) for child in children)
            return counted[node]

        return below(diagram) * self._skipped(0, diagram)

    def example(self, diagram: int) -> dict[int, int]:
        """One case for which the diagram is true: values of the variables that matter, the rest is free.

        >>> diagrams = Diagrams((3, 2))
        >>> diagrams.example(diagrams.denied(diagrams.among(0, [0, 1])))
        {0: 2}
        """
        assert diagram != FALSE, diagram
        values: dict[int, int] = {}
        while diagram != TRUE:
            level, children = self._nodes[diagram]
            # Every node but FALSE leads to TRUE, so no step has to be taken back.
            value = next(v for v, child in enumerate(children) if child != FALSE)
            values[level] = value
            diagram = children[value]
        return values

    def variables(self, diagram: int) -> frozenset[int]:
        """The variables whose values make a difference to the diagram.

        >>> diagrams = Diagrams((3, 2))
        >>> first, second = diagrams.among(0, [0]), diagrams.among(1, [1])
        >>> sorted(diagrams.variables(diagrams.either(first, diagrams.both(diagrams.denied(first), second))))
        [0, 1]
        >>> sorted(diagrams.variables(diagrams.either(first, diagrams.denied(first))))
        []
        """
        # A node whose value makes no difference is never made, so that every variable of a node makes one.
        visited, waiting = {FALSE, TRUE}, [diagram]
        found = set()
        while waiting:
            node = waiting.pop()
            if node not in visited:
                visited.add(node)
                level, children = self._nodes[node]
                found.add(level)
                waiting.extend(children)
        return frozenset(found)

    def _skipped(self, level: int, node: int) -> int:
        """Cases of the variables between a level and a node below it, which the node does not look at."""
        cases = 1
        for variable in range(level, self._nodes[node][0]):
            cases *= self.arities[variable]
        return cases

    def _node(self, level: int, children: tuple[int, ...]) -> int:
        # A variable whose value makes no difference has no node (Bryant 1986). With the numbers below, that makes a
        # diagram the only one of its function.
        if all(child == children[0] for child in children):
            return children[0]
        key = (level, children)
        if key not in self._numbers:
            if len(self._nodes) >= self.limit:
                raise TooLargeError
            self._nodes.append(key)
            self._numbers[key] = len(self._nodes) - 1
        return self._numbers[key]

    def _join(self, conjunction: bool, left: int, right: int) -> int:
        absorbing, neutral = (FALSE, TRUE) if conjunction else (TRUE, FALSE)
        if absorbing in (left, right):
            return absorbing
        if left in (neutral, right):
            return right
        if right == neutral:
            return left
        key = (conjunction, min(left, right), max(left, right))  # the order of the two does not matter
        if key not in self._joined:
            if len(self._joined) >= 8 * self.limit:
                raise TooLargeError
            # Shannon expansion by the first variable that either of them looks at.
            level = min(self._nodes[left][0], self._nodes[right][0])
            children = tuple(
                self._join(conjunction, self._child(left, level, value), self._child(right, level, value))
                for value in range(self.arities[level])
            )
            self._joined[key] = self._node(level, children)
        return self._joined[key]

    def _child(self, node: int, level: int, value: int) -> int:
        own, children = self._nodes[node]
        return children[value] if own == level else node
