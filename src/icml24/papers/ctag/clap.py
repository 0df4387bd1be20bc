r"""The scorer of the paper: LAION-CLAP from a local checkpoint.

Nothing is downloaded. A folder is read by `transformers`, a single checkpoint file by
`laion_clap`; both libraries are imported only when asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from . import _checks
from .audio import resample
from .scorers import _check_prompts

__all__ = ["ClapScorer"]

#: The published checkpoint of this family in the format that `transformers` reads.
USUAL_CHECKPOINT = "laion/clap-htsat-unfused"


class ClapScorer:
    """CLAP's two towers behind the interface of `TextAudioScorer`.

    Build it with `from_pretrained`.

    Attributes
    ----------
    sample_rate : int
        CLAP's own, 48000 for the published checkpoints; other rates are resampled.
    """

    def __init__(self, backend: _Transformers | _LaionClap) -> None:
        self._backend = backend
        self.sample_rate = backend.sample_rate

    @classmethod
    def from_pretrained(cls, path: str | Path) -> ClapScorer:
        """Load a checkpoint that is on this machine.

        Parameters
        ----------
        path : str or Path
            A folder saved by `transformers` (model and processor), or a ``.pt`` file of
            `laion_clap` (audio tower HTSAT-tiny, no fusion).

        Raises
        ------
        FileNotFoundError
            There is nothing at `path`.
        ImportError
            The library that reads it is not installed.
        """
        path = Path(path)
        if not path.exists():
            raise FileNotFoundError(
                f"no CLAP checkpoint at {path}; expected a local copy of {USUAL_CHECKPOINT} "
                "(a folder with model and processor) or a laion_clap .pt file; nothing is downloaded"
            )
        return cls(_Transformers(path) if path.is_dir() else _LaionClap(path))

    def embed_text(self, prompts: list[str]) -> Tensor:
        """Unit vectors [n, E] of prompts; refuses empty lists and empty prompts."""
        with torch.no_grad():
            return F.normalize(self._backend.text(_check_prompts(prompts)), dim=-1)

    def embed_audio(self, audio: Tensor, sample_rate: int) -> Tensor:
        """Unit vectors [B, E] of sounds [B, T].

        Clips shorter than ten seconds are repeated and padded by CLAP's front end; of longer
        ones the first ten seconds count (CLAP itself would cut at random).
        """
        audio = resample(_checks.audio("audio", audio), sample_rate, self.sample_rate)
        with torch.no_grad():
            embedded = self._backend.audio(audio[:, : 10 * self.sample_rate].float().cpu())
        return F.normalize(embedded, dim=-1).to(audio)


class _Transformers:
    def __init__(self, path: Path) -> None:
        try:
            from transformers import ClapModel, ClapProcessor
        except ImportError as error:
            raise ImportError("ClapScorer needs transformers; run `pip install transformers`") from error
        self.model = ClapModel.from_pretrained(path, local_files_only=True).eval()
        self.processor = ClapProcessor.from_pretrained(path, local_files_only=True)
        self.sample_rate = int(self.processor.feature_extractor.sampling_rate)

    def text(self, prompts: list[str]) -> Tensor:
        tokens = self.processor.tokenizer(prompts, padding=True, truncation=True, return_tensors="pt")
        kept = {name: tokens[name] for name in ("input_ids", "attention_mask")}
        return _pooled(self.model.get_text_features(**kept))

    def audio(self, audio: Tensor) -> Tensor:
        inputs = self.processor.feature_extractor(
            list(audio.numpy()), sampling_rate=self.sample_rate, padding="repeatpad", return_tensors="pt"
        )
        features = inputs["input_features"].to(self.model.dtype)
        return _pooled(
            self.model.get_audio_features(input_features=features, is_longer=inputs.get("is_longer"))
        )


class _LaionClap:
    sample_rate = 48000

    def __init__(self, path: Path) -> None:
        try:
            import laion_clap
        except ImportError as error:
            raise ImportError(
                f"{path.name} is a single file, which laion_clap reads; run `pip install laion-clap`, "
                "or pass a folder that transformers reads"
            ) from error
        self.model = laion_clap.CLAP_Module(enable_fusion=False, amodel="HTSAT-tiny")
        self.model.load_ckpt(str(path))

    def text(self, prompts: list[str]) -> Tensor:
        # its tokenizer drops the batch axis of a single prompt: never embed fewer than two
        return self.model.get_text_embedding([*prompts, prompts[0]], use_tensor=True)[:-1]

    def audio(self, audio: Tensor) -> Tensor:
        return self.model.get_audio_embedding_from_data(x=audio, use_tensor=True)


def _pooled(output: Any) -> Tensor:
    # newer versions of transformers return the projected vector inside an output object
    return output if isinstance(output, Tensor) else output.pooler_output
