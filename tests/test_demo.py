"""The demonstration says what to install where a target is absent."""

from eqsatad.backends import opencl
from eqsatad.demo import run
from eqsatad.errors import MissingExtraError


def test_absent_target_names_its_extra(monkeypatch, capsys):
    def absent(*_: object, **__: object) -> None:
        raise MissingExtraError("install it with: pip install 'eqsatad[opencl]'")

    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(opencl, "build", absent)
    assert run().passed
    assert "pip install 'eqsatad[opencl]'" in capsys.readouterr().out
