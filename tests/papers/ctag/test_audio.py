import math
import wave

import numpy as np
import pytest
import torch

from icml24.papers.ctag import write_wav
from icml24.papers.ctag.audio import LogMel, Players, peak_normalise, resample


def test_wav_round_trip(tmp_path):
    audio = torch.tensor([0.0, 1.0, -1.0, 0.5, -0.25])
    path = write_wav(tmp_path / "a.wav", audio, 16000)
    assert path == tmp_path / "a.wav"
    with wave.open(str(path)) as stored:
        assert (stored.getnchannels(), stored.getsampwidth(), stored.getframerate()) == (1, 2, 16000)
        samples = np.frombuffer(stored.readframes(5), dtype="<i2")
    assert samples.tolist() == [0, 32767, -32767, 16384, -8192]
    assert write_wav(str(tmp_path / "b.wav"), audio.double()[::2].requires_grad_(True), 48000).is_file()


@pytest.mark.parametrize(
    ("audio", "error", "match"),
    [
        (torch.tensor([0.0, 1.001]), ValueError, "peak"),
        (torch.tensor([0.0, math.nan]), ValueError, "peak"),
        (torch.zeros(0), ValueError, "empty"),
        (torch.zeros(1, 5), ValueError, "samples"),
        (torch.zeros(5, dtype=torch.int16), TypeError, "floating"),
        ([0.0], TypeError, "Tensor"),
    ],
)
def test_wav_rejects(tmp_path, audio, error, match):
    with pytest.raises(error, match=match):
        write_wav(tmp_path / "bad.wav", audio, 16000)
    assert not (tmp_path / "bad.wav").exists()


def test_bad_rate(tmp_path):
    with pytest.raises(ValueError, match="sample_rate"):
        write_wav(tmp_path / "bad.wav", torch.zeros(3), 0)
    assert not (tmp_path / "bad.wav").exists()


@pytest.mark.parametrize(("rate", "new"), [(48000, 16000), (44100, 16000), (16000, 48000)])
def test_resampling_keeps_a_tone(rate, new):
    def tone(at):
        return torch.sin(2 * math.pi * 440 * torch.arange(at, dtype=torch.float64) / at)

    torch.testing.assert_close(resample(tone(rate), rate, new), tone(new), rtol=0, atol=1e-9)
    assert resample(torch.zeros(2, 101), rate, new).shape == (2, math.ceil(101 * new / rate))
    high = torch.sin(2 * math.pi * 15000 * torch.arange(48000, dtype=torch.float64) / 48000)
    assert resample(high, 48000, 16000).abs().max() < 1e-9  # nothing folds back


def test_log_mel_of_a_tone_and_of_silence():
    mel = LogMel()
    t = torch.arange(16000, dtype=torch.float64) / 16000
    picture = mel(torch.stack([torch.sin(2 * math.pi * 1000 * t), 0 * t]))
    assert picture.shape == (2, 48, 101)
    assert torch.allclose(picture[1], torch.full_like(picture[1], (math.log(1e-4) + 4) / 4))
    # mel of 1 kHz between 40 and 7800 Hz: band 15 or 16 of 48 by the formula
    low, high, at = (2595 * math.log10(1 + f / 700) for f in (40, 7800, 1000))
    assert abs(picture[0, :, 50].argmax() + 1 - 49 * (at - low) / (high - low)) < 1
    # a sine's main lobe under a Hann window holds 1/4 in its middle bin and 1/16 on either side
    assert math.log(0.2) < 4 * picture[0].max() - 4 < math.log(0.375 + 1e-4)


def test_peak_normalisation():
    assert peak_normalise(torch.tensor([[0.1, -0.2], [0.0, 0.0]])).tolist() == [[0.5, -1.0], [0.0, 0.0]]


def test_players_are_embedded_and_named():
    players = Players({"rain & <wind>": 0.1 * torch.ones(8), "b": torch.zeros(8)}, 16000)
    html = players._repr_html_()
    assert html.count("<audio controls") == 2
    assert html.count('src="data:audio/wav;base64,') == 2
    assert 'aria-label="rain &amp; &lt;wind&gt;"' in html
    assert "http" not in html
    assert "2 sounds" in repr(players)
