r"""What the chapter runs: two instances of one configuration, and functions from it to results.

Every random stream is named by the seed of its run and by its purpose, so a result depends on
nothing that ran before it. Nothing here plots or prints.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import spearmanr
from torch import Tensor

from icml24.common.gpt import GPTConfig, RotaryGPT
from icml24.common.profiles import choose
from icml24.common.random import generator, numpy_generator
from icml24.common.statistics import bootstrap_interval
from icml24.papers.knowledge_extraction.corpora import BioConfig, Corpus, build_corpus
from icml24.papers.knowledge_extraction.evaluation import evaluate_bio, evaluate_qa, right_answers
from icml24.papers.knowledge_extraction.probes import (
    early_accuracy,
    p_probe_people,
    probe_classes,
    q_probe,
)
from icml24.papers.knowledge_extraction.sentences import ATTRIBUTES
from icml24.papers.knowledge_extraction.training import TrainConfig, finetune_qa, pretrain

__all__ = [
    "CORE",
    "FULL",
    "QUICK",
    "Comparison",
    "Config",
    "Mixed",
    "Places",
    "Run",
    "celebrities",
    "compare",
    "configure",
    "lora_grid",
    "mean",
    "mixed_training",
    "people_interval",
    "place_probe",
    "train_run",
    "variant",
]

#: Variants on which claims rest.
CORE = ("single", "multi5+permute", "multi25+permute")
LORA_LR = 2e-3
ALL = 1000  # entries of the longest name pool: keeps every name


@dataclass(frozen=True)
class Config:
    """Sizes of every experiment.

    Attributes
    ----------
    seed : int
        Base seed; repetition `i` uses ``seed + i`` for its people, texts, weights and batches.
    variants : tuple of str
        Kinds of text compared, such as ``"multi5+permute"``.
    seeds, other_seeds : int
        Repetitions of the comparison for the variants in `CORE`, and for the others.
    n_people, n_values, steps, qa_steps
        Population, values kept of each pool, steps of pretraining and of finetuning.
    lora_ranks : tuple of (int, int)
        Ranks of the updates of query and value, and of the embedding.
    mixed_people, mixed_steps, mixed_batch, mixed_seeds
        Population, steps, biographies a step and repetitions of mixed training.
    many_people, few_values, many_steps, many_seeds
        The larger population of the celebrities and of the recorded position probe; 0 seeds leave
        it out.
    place_rank, place_steps : int
        Rank of the embedding's update, and steps, of the position probe.
    """

    seed: int = 0
    variants: tuple[str, ...] = ("single", "multi25+permute")
    seeds: int = 1
    other_seeds: int = 1
    n_people: int = 200
    n_values: int = 40
    steps: int = 500
    qa_steps: int = 300
    lora_ranks: tuple[tuple[int, int], ...] = ((8, 16),)
    mixed_people: int = 60
    mixed_steps: int = 180
    mixed_batch: int = 10
    mixed_seeds: int = 1
    many_people: int = 400
    few_values: int = 10
    many_steps: int = 1000
    many_seeds: int = 0
    place_rank: int = 0
    place_steps: int = 200


QUICK = Config(qa_steps=190)  # enough for the training people; more would not fit two minutes
FULL = Config(
    variants=(
        "single",
        "single+permute",
        "multi5",
        "multi5+permute",
        "multi5+permute+fullname",
        "multi25+permute",
    ),
    seeds=2,
    lora_ranks=tuple((qv, embedding) for qv in (2, 8, 16) for embedding in (0, 16, 64)),
    mixed_people=200,
    mixed_steps=500,
    mixed_batch=25,
    mixed_seeds=2,
    many_seeds=2,
    place_rank=2,
)


def configure(profile: str, **overrides: object) -> Config:
    """The profile's configuration, with single fields replaced (see `profiles.choose`)."""
    return choose({"quick": QUICK, "full": FULL}, profile, **overrides)


def variant(name: str, **fields: object) -> BioConfig:
    """Kind of text by its name: ``single`` or ``multiM``, then ``+permute``, ``+fullname`` or both.

    Raises
    ------
    ValueError
        Another name.
    """
    head, *rest = name.split("+")
    known = head == "single" or (head.startswith("multi") and head[5:].isdigit())
    if not known or not set(rest) <= {"permute", "fullname"}:
        raise ValueError(f"unknown variant {name!r}; expected single or multiM, then +permute, +fullname")
    return BioConfig(
        n_names=ALL,
        multiplicity=1 if head == "single" else int(head[5:]),
        permute="permute" in rest,
        fullname="fullname" in rest,
        **fields,
    )


def mean(by_attribute: Mapping[str, float]) -> float:
    """Mean over the six attributes."""
    return sum(by_attribute.values()) / len(by_attribute)


@dataclass(frozen=True)
class Run:
    """One model, from its texts to its answers.

    Attributes
    ----------
    corpus : Corpus
    pretrained, finetuned : RotaryGPT
    loss : list of float
        Of pretraining, a value a step, nats a token.
    bio : dict
        First-token accuracy in the held-out people's biographies after pretraining, by attribute.
    train : dict
        Exact match of answers about the training people after finetuning, by attribute.
    right : Tensor, shape (held-out people, 6), bool
        Which answers about the held-out people are exactly right.
    """

    corpus: Corpus
    pretrained: RotaryGPT
    finetuned: RotaryGPT
    loss: list[float] = field(repr=False)
    bio: dict[str, float]
    train: dict[str, float]
    right: Tensor = field(repr=False)

    @property
    def test(self) -> dict[str, float]:
        """Exact match of answers about the held-out people, by attribute."""
        return dict(zip(ATTRIBUTES, self.right.double().mean(0).tolist(), strict=True))

    @property
    def by_person(self) -> np.ndarray:
        """Share of the six answers that are right, one value a held-out person."""
        return self.right.double().mean(1).numpy()

    def probed(self, seed: int) -> dict[str, float]:
        """`q_probe` of the pretrained model."""
        return q_probe(self.pretrained, self.corpus, generator=generator(seed, "query probe"))


def train_run(text: BioConfig, config: Config, steps: int) -> Run:
    """Pretrain on a kind of text, then finetune a copy on the training split's questions."""
    seed = text.seed
    corpus = build_corpus(text)
    model = RotaryGPT(GPTConfig(len(corpus.tokenizer)), generator=generator(seed, "model"))
    history = pretrain(model, corpus, TrainConfig(steps=steps, seed=seed))
    tuned = copy.deepcopy(model)
    finetune_qa(tuned, corpus, _finetuning(config, seed))
    return Run(
        corpus,
        model,
        tuned,
        history["loss"],
        evaluate_bio(model, corpus, "test"),
        evaluate_qa(tuned, corpus, "train")["exact"],
        right_answers(tuned, corpus, "test")[1],
    )


@dataclass(frozen=True)
class Comparison:
    """Runs by variant, one a seed."""

    runs: dict[str, tuple[Run, ...]]

    def test(self, name: str) -> np.ndarray:
        """Mean exact match on the held-out people, one value a seed."""
        return np.array([mean(run.test) for run in self.runs[name]])

    def interval(self, name: str, minus: str | None = None) -> tuple[float, float, float]:
        """Mean over held-out people and 95 % bootstrap interval, of differences when `minus` is given.

        The resampled units are people, pooled over the seeds that both variants have; differences
        are taken person by person, as variants share their people.
        """
        return people_interval(self.runs[name], None if minus is None else self.runs[minus])

    def query_probes(self) -> dict[str, np.ndarray]:
        """Mean accuracy of the query probe by variant, one value a seed."""
        return {
            name: np.array([mean(run.probed(run.corpus.config.seed)) for run in runs])
            for name, runs in self.runs.items()
        }

    def rank_correlation(self, probes: Mapping[str, np.ndarray]) -> float:
        """Spearman correlation, over variants, of the probes' and the answers' means over seeds."""
        answers = [self.test(name).mean() for name in self.runs]
        return float(spearmanr([probes[name].mean() for name in self.runs], answers).statistic)


def compare(config: Config) -> Comparison:
    """Every variant on the same people: same weights at the start, same optimiser, same finetuning."""
    runs = {
        name: tuple(
            train_run(
                variant(name, n_people=config.n_people, n_values=config.n_values, seed=config.seed + i),
                config,
                config.steps,
            )
            for i in range(config.seeds if name in CORE else config.other_seeds)
        )
        for name in config.variants
    }
    return Comparison(runs)


def people_interval(runs: Sequence[Run], minus: Sequence[Run] | None = None) -> tuple[float, float, float]:
    """Mean over the held-out people of all runs and its 95 % bootstrap interval; see `Comparison.interval`."""
    values = [run.by_person for run in runs]
    if minus is not None:
        values = [ours - theirs.by_person for ours, theirs in zip(values, minus, strict=False)]
    pooled = np.concatenate(values)
    low, high = bootstrap_interval(pooled, generator=numpy_generator(0, "knowledge_extraction"))
    return float(pooled.mean()), low, high


def lora_grid(run: Run, config: Config) -> dict[tuple[int, int], tuple[float, float]]:
    """Exact match (training people, held-out people) after low-rank finetuning, by ranks."""
    found = {}
    for ranks in config.lora_ranks:
        model = copy.deepcopy(run.pretrained)
        finetune_qa(model, run.corpus, _finetuning(config, run.corpus.config.seed, lr=LORA_LR), lora=ranks)
        found[ranks] = tuple(
            mean(evaluate_qa(model, run.corpus, split)["exact"]) for split in ("train", "test")
        )
    return found


@dataclass(frozen=True)
class Mixed:
    """Accuracies during mixed training on un-augmented text.

    Attributes
    ----------
    steps : ndarray, shape (S,)
    curves : dict of name to ndarray, shape (seeds, S)
        ``QA train``, ``BIO train``, ``BIO test`` (first token), ``QA test`` (exact match otherwise).
    """

    steps: np.ndarray
    curves: dict[str, np.ndarray]

    def half_way(self) -> dict[str, float]:
        """First step at which a curve, averaged over seeds, has risen half of its whole rise."""
        return {
            name: float(self.steps[np.argmax(curve >= 0.5 * (curve[0] + curve[-1]))])
            for name, curve in ((name, values.mean(0)) for name, values in self.curves.items())
        }


def mixed_training(config: Config, every: int = 20) -> Mixed:
    """Biographies of everybody and questions of the training people, together from the start."""
    names = ("QA train", "BIO train", "BIO test", "QA test")
    curves: dict[str, list[list[float]]] = {name: [] for name in names}
    steps = [0, *range(every, config.mixed_steps + 1, every)]
    for i in range(config.mixed_seeds):
        seed = config.seed + i
        corpus = build_corpus(
            variant("single", n_people=config.mixed_people, n_values=config.n_values, seed=seed)
        )
        model = RotaryGPT(GPTConfig(len(corpus.tokenizer)), generator=generator(seed, "model"))
        seen: dict[str, list[float]] = {name: [] for name in names}

        def record(step: int, model: RotaryGPT = model, corpus: Corpus = corpus, seen: dict = seen) -> None:
            if step % every == 0:
                for split in ("train", "test"):
                    seen[f"QA {split}"].append(mean(evaluate_qa(model, corpus, split)["exact"]))
                    seen[f"BIO {split}"].append(mean(evaluate_bio(model, corpus, split)))

        record(0)
        training = TrainConfig(steps=config.mixed_steps, batch_size=config.mixed_batch, seed=seed)
        pretrain(model, corpus, training, qa_ratio=2.0, callback=record)
        for name in names:
            curves[name].append(seen[name])
    return Mixed(np.array(steps), {name: np.array(values) for name, values in curves.items()})


@dataclass(frozen=True)
class Places:
    """Position probe of one model.

    Attributes
    ----------
    matrix : Tensor, shape (6, 6)
        Accuracy over all held-out people, by place and attribute.
    ahead : Tensor, shape (6, 6)
        The same over those whose value is still to come after the place's own; NaN for nobody.
    early : float
        Accuracy over all cases of that kind.
    chance : float
        What the best constant answers would score in those cases.
    """

    matrix: Tensor
    ahead: Tensor
    early: float
    chance: float


def place_probe(run: Run, config: Config) -> Places:
    """Position probe of a pretrained model."""
    corpus = run.corpus
    right = p_probe_people(
        run.pretrained,
        corpus,
        rank=config.place_rank,
        steps=config.place_steps,
        generator=generator(corpus.config.seed, "position probe"),
    )
    labels, _ = probe_classes(corpus)
    labels = labels[corpus.split("test")]
    commonest = (labels == labels.mode(0).values)[:, None, :].expand(-1, len(ATTRIBUTES), -1)
    ahead, early = early_accuracy(right, corpus)
    return Places(right.double().mean(0), ahead, early, early_accuracy(commonest, corpus)[1])


def celebrities(config: Config, name: str = "multi5+permute") -> dict[str, tuple[Run, ...]]:
    """The larger population under three regimes: nobody augmented, the first half, everybody.

    In all three the first half's questions are finetuned on and the second half is tested. The
    third regime serves the position probe and is run once.
    """
    found: dict[str, tuple[Run, ...]] = {}
    for regime in ("nobody", "half", "everybody"):
        runs = []
        for i in range(1 if regime == "everybody" else config.many_seeds):
            fields = {"n_people": config.many_people, "n_values": config.few_values, "seed": config.seed + i}
            if regime == "half":
                fields["celebrity_fraction"] = 0.5
            text = variant("single" if regime == "nobody" else name, **fields)
            runs.append(train_run(text, config, config.many_steps))
        found[regime] = tuple(runs)
    return found


def _finetuning(config: Config, seed: int, lr: float = 5e-4) -> TrainConfig:
    return TrainConfig(steps=config.qa_steps, batch_size=64, lr=lr, weight_decay=0.01, seed=seed)
