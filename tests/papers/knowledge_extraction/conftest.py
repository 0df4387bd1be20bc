import pytest
import torch

from icml24.papers.knowledge_extraction import BioConfig, GPTConfig, RotaryGPT, build_corpus


@pytest.fixture(scope="session")
def corpus():
    return build_corpus(
        BioConfig(n_people=24, n_values=6, n_names=1000, multiplicity=3, permute=True, seed=5)
    )


@pytest.fixture
def make_model(corpus):
    """Tiny model for the session's corpus, weights scaled up so that its answers are not uniform."""

    def make(seed=0, dtype=torch.float64, scale=8.0):
        config = GPTConfig(len(corpus.tokenizer), n_layer=2, n_head=2, d_model=16)
        model = RotaryGPT(config, generator=torch.Generator().manual_seed(seed)).to(dtype)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 2:
                    parameter.mul_(scale)
        return model

    return make
