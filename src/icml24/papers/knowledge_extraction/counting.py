r"""What can be counted without training: loss floors, usable contexts, chance, capacity.

These are the chapter's small theorems as functions; each is exact, or says how it is estimated.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from statistics import NormalDist

import numpy as np

from icml24.papers.knowledge_extraction.corpora import Corpus
from icml24.papers.knowledge_extraction.people import DAYS, MONTHS, YEARS, Person
from icml24.papers.knowledge_extraction.sentences import ATTRIBUTES

__all__ = [
    "NAME",
    "bits_per_person",
    "chance_accuracy",
    "determines",
    "expected_top_share",
    "fresh_text_entropy",
    "prefix_entropy",
    "usable_contexts",
    "visible_probability",
    "wilson_interval",
]

#: The context that is no attribute.
NAME = "name"


def prefix_entropy(sequences: Iterable[Sequence[int]]) -> float:
    r"""Least total loss of a sequence when exactly these are trained on, each as often as it occurs.

    .. math:: \sum_t H(x_t \mid x_{<t}) = H(x)

    Parameters
    ----------
    sequences : iterable of sequence
        Non-empty; each starts with the same token and none is a strict prefix of another.

    Returns
    -------
    float
        In nats a sequence, summed over the branchings of the prefix tree.

    Raises
    ------
    ValueError
        No sequences.
    """
    counts = Counter(tuple(sequence) for sequence in sequences)
    total = sum(counts.values())
    if total == 0:
        raise ValueError("no sequences: the entropy of nothing is not defined")
    below: Counter[tuple] = Counter()
    for sequence, count in counts.items():
        for length in range(len(sequence) + 1):
            below[sequence[:length]] += count
    # Each child contributes -p(child) log p(child | parent); children that never branch contribute 0.
    return sum(
        -(count / total) * math.log(count / below[prefix[:-1]]) for prefix, count in below.items() if prefix
    )


def fresh_text_entropy(table: Mapping[str, Sequence[str]], *, permute: bool) -> float:
    r"""Entropy in nats of the choices behind one biography of a known person.

    .. math:: \log\bigl(\#\text{orders}\bigr) + \sum_a \log\bigl(\#\text{forms of } a\bigr)

    What no amount of training on *fresh* texts can remove.
    """
    orders = math.lgamma(len(table) + 1) if permute else 0.0
    return orders + sum(math.log(len(forms)) for forms in table.values())


def usable_contexts(orders: Iterable[Sequence[str]], target: str) -> set[frozenset[str]]:
    """Sets of contexts that stand before the target's sentence in *every* order.

    Parameters
    ----------
    orders : iterable of sequence of str
        Orders of the attributes that occur in a corpus; at least one.
    target : str
        The attribute to be predicted.

    Returns
    -------
    set of frozenset
        Among the subsets of `NAME` and the other attributes. The name stands before everything.

    Raises
    ------
    ValueError
        No orders, or an order without the target.
    """
    always: frozenset[str] | None = None
    for order in orders:
        if target not in order:
            raise ValueError(f"{target!r} does not occur in the order {tuple(order)}")
        seen = frozenset(list(order)[: list(order).index(target)]) | {NAME}
        always = seen if always is None else always & seen
    if always is None:
        raise ValueError("no orders: expected at least one")
    return {frozenset(part) for size in range(len(always) + 1) for part in combinations(sorted(always), size)}


def determines(people: Sequence[Person], context: Iterable[str], target: str) -> bool:
    """Whether, among these people, the context's values leave no choice for the target's."""
    seen: dict[tuple[str, ...], str] = {}
    parts = sorted(context)
    for person in people:
        key = tuple(person.full_name if part == NAME else person.value(part) for part in parts)
        value = person.value(target)
        if seen.setdefault(key, value) != value:
            return False
    return True


def visible_probability(slot: int) -> float:
    """Probability that a given attribute stands before sentence `slot` (1..6) of a shuffled biography."""
    if not 1 <= slot <= len(ATTRIBUTES):
        raise ValueError(f"a biography has sentences 1..{len(ATTRIBUTES)}; got {slot}")
    return (slot - 1) / len(ATTRIBUTES)


def expected_top_share(n: int, k: int) -> float:
    r"""Expected share of the commonest of `k` equally likely classes among `n` people.

    .. math:: \frac1n \sum_{m \ge 0} \bigl(1 - P(\max \le m)\bigr), \qquad
        P(\max \le m) = \frac{n!}{k^n}\,[x^n] \Bigl(\sum_{j \le m} x^j / j!\Bigr)^{k}

    What a constant answer scores when it happens to be the best one.

    Raises
    ------
    ValueError
        ``n < 1`` or ``k < 1``.
    """
    if n < 1 or k < 1:
        raise ValueError(f"expected at least one person and one class; got n = {n}, k = {k}")
    expected = 0.0
    for most in range(n):
        # Multinomial counts as Poisson(n / k) counts, given their sum: probabilities stay in range.
        log_p = [j * math.log(n / k) - n / k - math.lgamma(j + 1) for j in range(most + 1)]
        one = np.zeros(n + 1)
        one[: most + 1] = np.exp(log_p)
        power = np.zeros(n + 1)
        power[0] = 1.0
        for bit in f"{k:b}":
            power = np.convolve(power, power)[: n + 1]
            if bit == "1":
                power = np.convolve(power, one)[: n + 1]
        log_sum = n * math.log(n) - n - math.lgamma(n + 1)
        within = power[n] / math.exp(log_sum)
        if within > 1 - 1e-15:
            break
        expected += 1.0 - within
    return expected / n


def chance_accuracy(corpus: Corpus, split: str) -> dict[str, float]:
    """Share of the commonest value among a split's people, by attribute: the best constant answer."""
    people = [corpus.people[i] for i in corpus.split(split)]
    return {
        attribute: Counter(p.value(attribute) for p in people).most_common(1)[0][1] / len(people)
        for attribute in ATTRIBUTES
    }


def wilson_interval(share: float, n: int, *, level: float = 0.95) -> tuple[float, float]:
    r"""Wilson's interval for a share of `n` independent trials.

    .. math:: \frac{\hat p + z^2/2n \pm z\sqrt{\hat p(1-\hat p)/n + z^2/4n^2}}{1 + z^2/n}

    Raises
    ------
    ValueError
        `share` outside [0, 1], ``n < 1``, `level` outside (0, 1).
    """
    if not 0 <= share <= 1 or n < 1 or not 0 < level < 1:
        raise ValueError(f"expected share in [0, 1], n >= 1, level in (0, 1); got {share}, {n}, {level}")
    z = NormalDist().inv_cdf(0.5 + level / 2)
    centre = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return (centre - half) / scale, (centre + half) / scale


def bits_per_person(*, city: int, university: int, major: int, company: int) -> float:
    r"""Information in one person's attributes, in bits.

    .. math:: \log_2(12 \cdot 28 \cdot 200) + \log_2 \#\text{cities} + \log_2 \#\text{universities}
        + \log_2 \#\text{majors} + \log_2 \#\text{companies}

    The company's city is a function of the company and adds nothing.
    """
    pools = {"city": city, "university": university, "major": major, "company": company}
    small = {name: size for name, size in pools.items() if size < 1}
    if small:
        raise ValueError(f"a pool has at least one entry; got {small}")
    dates = len(MONTHS) * len(DAYS) * len(YEARS)
    return math.log2(dates) + sum(math.log2(size) for size in pools.values())
