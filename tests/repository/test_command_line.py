"""``python -m autoq``: its help, its table, its errors, and a short training run with its pictures."""

from __future__ import annotations

import pytest
from threadpoolctl import threadpool_info

import autoq as aq
from autoq.__main__ import main
from autoq.cli.digits import one_blas_thread, recipes_of
from autoq.cli.formats import HEADER, formats_table


@pytest.mark.parametrize("words", [["--help"], ["train", "digits", "--help"], ["formats", "--help"]])
def test_help_is_printed(words, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(words)
    assert exit_.value.code == 0
    assert "usage: python -m autoq" in capsys.readouterr().out


def test_formats_lists_every_named_scheme_with_its_numbers(capsys):
    assert main(["formats"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == list(aq.CATALOG)
    mxfp8 = next(line for line in lines if line.startswith("mxfp8 "))
    assert mxfp8.split() == ["mxfp8", "e4m3", "32", "ue8m0", "8.25", "448", "2^-6", "2^-9"]
    assert all(title in lines[0] for title in HEADER)


def test_a_registered_scheme_appears_in_the_table(monkeypatch):
    monkeypatch.setitem(aq.CATALOG, "toy", aq.int4.replace(block=(64,), scale="f16"))
    assert "4.25" in formats_table().splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--signal", "mxfp9"], "Did you mean 'mxfp8'?"),
        (["--weights", "nvpf4"], "Did you mean 'nvfp4'?"),
        (["--epochs", "0"], "epochs"),
        (["--batch-size", "0"], "batch_size=0"),
        (["--device", "gpu"], "device 'gpu' is not offered"),
    ],
)
def test_bad_words_are_refused_with_what_to_do(words, message, capsys):
    assert main(["train", "digits", *words]) == 2
    assert message in capsys.readouterr().err


def test_missing_packages_are_named_with_how_to_get_them(monkeypatch, capsys):
    monkeypatch.setattr("autoq.cli.digits.find_spec", lambda name: None if name == "tqdm" else object())
    assert main(["train", "digits"]) == 2
    assert "tqdm not installed" in capsys.readouterr().err


def options(*words):
    from autoq.__main__ import parser

    return parser().parse_args(["train", "digits", *words])


def test_without_schemes_four_runs_are_trained_on_one_seed():
    recipes = recipes_of(options("--seed", "3"))
    assert [recipe.name for recipe in recipes] == [
        "float32",
        "mxfp8 signal",
        "mxfp8 signal, nvfp4 weights",
        "int8 signal, int4 weights",
    ]
    assert {recipe.seed for recipe in recipes} == {3}


def test_a_signal_or_weights_make_it_one_run():
    assert [recipe.name for recipe in recipes_of(options("--signal", "mxfp4"))] == ["mxfp4 signal"]
    assert [recipe.name for recipe in recipes_of(options("--weights", "int2"))] == ["int2 weights"]
    assert [recipe.name for recipe in recipes_of(options("--signal", "float32"))] == ["float32"]


@pytest.mark.slow
def test_a_run_prints_a_table_and_draws_its_pictures(tmp_path, capsys, device):
    folder = tmp_path / "out"
    assert (
        main(
            [
                "train",
                "digits",
                "--signal",
                "mxfp8",
                "--weights",
                "nvfp4",
                "--epochs",
                "2",
                "--device",
                device,
                "--out",
                str(folder),
            ]
        )
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        "1,438 scanned digits to train on, 359 to test on; layers 64-256-128-10, 2 epochs"
    )
    assert lines[0].endswith(f"on {device}") is (device != "cpu")
    assert lines[1].startswith("run")
    assert lines[3].startswith("mxfp8 signal, nvfp4 weights")
    assert {path.name for path in folder.glob("*.png")} == {
        "loss.png",
        "weights.png",
        "quantization_error.png",
    }
    assert all(path.stat().st_size > 10_000 for path in folder.glob("*.png"))


def test_four_runs_on_few_digits_have_a_row_each(monkeypatch, tmp_path, capsys):
    few = aq.data.Split(*(part[:16] for part in aq.data.digits()))
    monkeypatch.setattr("autoq.cli.digits.load_digits", lambda seed: few)
    for module in ("autoq.cli.digits", "autoq.train.digits", "autoq.train.measure"):
        monkeypatch.setattr(f"{module}.WIDTHS", (64, 32, 24, 10))
    assert main(["train", "digits", "--epochs", "1", "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("16 scanned digits to train on, 16 to test on; layers 64-32-24-10")
    names = [recipe.name for recipe in recipes_of(options())]
    assert [line.split("  ")[0] for line in lines[3:7]] == names
    assert all("%" in line for line in lines[3:7])
    assert {path.name for path in tmp_path.iterdir()} == {
        *("loss.png", "weights.png", "quantization_error.png")
    }


def test_a_folder_that_is_a_file_is_refused_before_training(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("")
    assert main(["train", "digits", "--epochs", "1", "--out", str(file)]) == 2
    assert "is a file" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_refused_before_training(monkeypatch, tmp_path, capsys):
    def refuse(dir):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("autoq.cli.digits.TemporaryFile", refuse)
    assert main(["train", "digits", "--epochs", "1", "--out", str(tmp_path)]) == 2
    assert f"--out {tmp_path} can't be written: Permission denied." in capsys.readouterr().err


def test_the_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out.strip() == f"autoq {aq.__version__}"


def test_training_uses_one_blas_thread_and_gives_the_others_back():
    def counts():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before = counts()
    with one_blas_thread():
        assert set(counts()) <= {1}
    assert counts() == before
