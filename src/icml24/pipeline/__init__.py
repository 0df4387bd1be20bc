"""From a chapter's source to an executed, checked and published page; knows no paper by name."""

from icml24.pipeline import _quick_start as _quick_start
