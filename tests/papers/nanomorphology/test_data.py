"""Reading the laboratory's files: from stand-ins always, from the real ones where they are."""

from __future__ import annotations

import hashlib
import json
import sys

import numpy as np
import pandas as pd
import pytest

from icml24.papers.nanomorphology import (
    SHAPES,
    feature_columns,
    load_dataset,
    make_targets,
    parse_reply,
    render_procedure,
    repeated_holdout,
)
from icml24.papers.nanomorphology.data import (
    laboratory,
    load_conditions,
    load_crops,
    load_recordings,
    load_templates,
)
from icml24.papers.nanomorphology.generated import generated_conditions, generated_dataset
from icml24.papers.nanomorphology.replies import format_shapes


@pytest.mark.parametrize("ending", [".csv", ".xlsx"])
def test_both_formats_read_the_same(tmp_path, ending):
    frame, path = generated_dataset(1), tmp_path / f"dataset_labeled{ending}"
    if ending == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_excel(path, index=False)
    for argument in (path, str(path), tmp_path):
        pd.testing.assert_frame_equal(load_dataset(argument), frame, check_dtype=False)


def test_a_missing_column_is_named(tmp_path):
    generated_dataset(1).drop(columns="Flat_min").to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(KeyError, match="Flat_min"):
        load_dataset(tmp_path / "t.csv")


def test_absent_files_say_where_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setenv("ICML24_DATA", str(tmp_path))
    monkeypatch.setenv("ICML24_CACHE", str(tmp_path / "cache"))
    for argument in (None, tmp_path / "nothing.csv", tmp_path):
        with pytest.raises(FileNotFoundError, match=r"ICML24_DATA.*icml24 data fetch nanomorphology"):
            load_dataset(argument)
    found = laboratory()
    assert found.dataset is None
    assert found.recordings is None


def test_a_changed_file_is_refused(tmp_path, monkeypatch):
    (tmp_path / "nanomorphology").mkdir()
    generated_dataset(1).to_csv(tmp_path / "nanomorphology" / "dataset_labeled.csv", index=False)
    monkeypatch.setenv("ICML24_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"(?i)sha|hash"):
        load_dataset()


def test_other_formats_and_missing_reader(tmp_path, monkeypatch):
    (tmp_path / "table.json").write_text("{}")
    with pytest.raises(ValueError, match=r"\.csv or \.xlsx"):
        load_dataset(tmp_path / "table.json")
    generated_dataset(1).to_excel(tmp_path / "t.xlsx", index=False)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ImportError, match="openpyxl"):
        load_dataset(tmp_path / "t.xlsx")


def test_conditions_templates_crops_and_recordings_of_stand_ins(tmp_path):
    generated_conditions(1).to_csv(tmp_path / "synthesis_conditions_dataset.csv", index=False)
    assert len(load_conditions(tmp_path)) == 215
    (tmp_path / "t.txt").write_text("a {ca_conc}  \n\n  b\n")
    assert load_templates(tmp_path / "t.txt") == ("a {ca_conc}", "  b")
    images = np.zeros((2, 64, 64), np.uint8)
    images[0, 0, 0] = 255
    np.savez(tmp_path / "p.npz", images=images, image_id=np.array([4, 9], np.int16))
    crops, ids = load_crops(tmp_path / "p.npz")
    assert crops.shape == (2, 1, 32, 32)
    assert crops[0, 0, 0, 0] == 0.25
    assert ids.tolist() == [4, 9]
    record = {
        "classes": list(SHAPES),
        "configs": {
            "m_2_0.2_strict_text": {
                "model": "m",
                "n_shots": 2,
                "test_fraction": 0.2,
                "runs": {"1": {"reply": ["Cube"], "truth": ["10001"]}},
            }
        },
    }
    (tmp_path / "r.json").write_text(json.dumps(record))
    entry = load_recordings(tmp_path / "r.json")["m_2_0.2_strict_text"]
    assert (entry.model, entry.shots, entry.test_fraction, entry.replies) == ("m", 2, 0.2, (("Cube",),))
    assert entry.truth[0].tolist() == [[1, 0, 0, 0, 1]]


def test_laboratory_table(laboratory_files, parity):
    frame = load_dataset()
    assert frame.shape == (209, 45)
    assert frame.dtypes.equals(generated_dataset(0).dtypes)
    pd.testing.assert_frame_equal(frame, load_dataset(laboratory_files / "dataset_labeled.xlsx"))
    with np.load(parity / "targets.npz") as file:
        np.testing.assert_array_equal(make_targets(frame), file["targets"])
        assert feature_columns(frame) == list(file["filtered_columns"])


def test_laboratory_texts(laboratory_files, parity):
    """Template 0 gives the authors' texts character by character; no template leaves a brace."""
    conditions, templates, frame = load_conditions(), load_templates(), load_dataset()
    assert len(templates) == 25
    for entry in json.loads((parity / "procedures.json").read_text()):
        text = render_procedure(conditions.loc[entry["image_id"]], templates[entry["template"]])
        assert len(text) == entry["characters"]
        assert hashlib.sha256(text.encode()).hexdigest() == entry["sha256"]
    for template in templates:
        for i in frame["Image_id"]:
            assert not set("{}") & set(render_procedure(conditions.loc[i], template))


@pytest.mark.slow
@pytest.mark.parametrize("columns", ["filtered", "all"])
def test_laboratory_forests(laboratory_files, parity, columns):
    """Means within .02 and each seed within three test rows of the public protocol's figures."""
    table, frame = json.loads((parity / "rf_default_table.json").read_text()), load_dataset()
    for shape in SHAPES:
        ours = repeated_holdout(frame, shape, filtered=columns == "filtered")
        theirs = table[columns][shape]
        for name in ("accuracy", "macro_f1"):
            values = np.array(theirs[name])
            assert abs(getattr(ours, name).mean() - values.mean()) < 0.02
        assert np.abs(ours.accuracy - np.array(theirs["accuracy"])).max() < 0.045


def test_laboratory_replies(laboratory_files, parity):
    """The parity file's parsed replies are those of the recorded texts, and its truth is theirs."""
    recordings = load_recordings()
    assert len(recordings) == 24
    for run in json.loads((parity / "llm_metrics.json").read_text()):
        entry = recordings[run["config"]]
        i = int(run["run"]) - 1
        assert ["".join(map(str, parse_reply(reply))) for reply in entry.replies[i]] == run["predicted"]
        assert ["".join(map(str, row)) for row in entry.truth[i]] == run["truth"]
        assert all(format_shapes(row) for row in entry.truth[i])
