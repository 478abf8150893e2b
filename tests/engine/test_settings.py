"""Settings: what is read is what was written, and what is wrong is named."""

import pytest

from chiaroscuro.engine import Settings, preset_text, presets, read_settings
from chiaroscuro.errors import InputError

PRESETS = {
    *("simclr", "moco", "byol", "vicreg", "barlow-twins", "supcon", "directclr", "clip", "laclip"),
    *("symbol-context", "symbol-context-labels", "symbol-context-tokens", "digits", "geometry"),
    *("emoji-clip", "emoji-laclip"),
    *(f"kernel-infonce-{name}" for name in ("gaussian", "laplace", "gamma", "sum", "concat")),
    *("kernel-infonce-loss-sum", "kernel-infonce-loss-concat"),
}


def test_the_presets_are_there():
    assert set(presets()) >= PRESETS


@pytest.mark.parametrize("name", presets())
def test_a_preset_is_short_and_reads_back(name, tmp_path):
    settings = read_settings(name)
    assert len(preset_text(name).splitlines()) < 50
    assert preset_text(name).startswith("# ")
    assert read_settings(settings.toml()) == settings
    file = tmp_path / "mine.toml"
    file.write_text(preset_text(name))
    assert read_settings(str(file)) == settings == read_settings(settings.table())


def test_the_defaults_are_simclr():
    assert read_settings("simclr") == Settings()


def test_overrides_as_a_dictionary():
    changed = read_settings("simclr", {"optimiser.lr": 1, "seed": 3})
    assert changed == read_settings("simclr", ["optimiser.lr=1", "seed=3"])
    with pytest.raises(InputError, match=r"`seed\.x=1`: `seed` is one value"):
        read_settings(changed, {"seed.x": 1})


def test_overrides():
    settings = read_settings(
        "simclr",
        [
            "optimiser.lr=1",
            "objective=InfoNCE(Gaussian(tau=0.1))",
            'views.first="SimCLR(size=16)"',
            "views.fresh=true",
            "seed = 3",
        ],
    )
    assert settings.optimiser.lr == 1.0
    assert type(settings.optimiser.lr) is float
    assert settings.objective == "InfoNCE(Gaussian(tau=0.1))"
    assert settings.views.first == "SimCLR(size=16)"
    assert settings.views.fresh is True
    assert settings.seed == 3


WRONG = {
    "optimiser.rl=1": r"`optimiser.rl` is not a setting; did you mean `optimiser.lr`\?",
    "warmup=1": r"`warmup` is not a setting; did you mean `schedule.warmup`\?",
    "optimizer.lr=1": r"`optimizer` is not a setting; did you mean `optimiser`\?",
    "seed.x=1": "`optimiser`|has no keys below|needs a whole number",
    "seed": "needs `key=value`",
    "epochs=1.5": "`epochs` needs a whole number; received 1.5",
    "epochs=true": "`epochs` needs a whole number; received True",
    "epochs=0": "`epochs` needs a number from 1; received 0",
    "optimiser.lr=fast": "`optimiser.lr` needs a number; received 'fast'",
    "optimiser.lr=-1": "`optimiser.lr` needs a number from 0; received -1.0",
    "optimiser.lr=nan": "`optimiser.lr`",
    "optimiser.momentum=1": "below 1; received 1.0",
    "optimiser=3": "`optimiser` needs a table of settings; received 3",
    "optimiser.name=adam": r"received `adam`; did you mean `adamw`\?",
    "views.first=SimCRL(size=3)": r"`views`: `SimCRL` is not known here; did you mean `SimCLR`\?",
    "objective=InfoNCE(Gausian())": r"did you mean `Gaussian`\?",
    "network.queue=4": "`network.queue = 4` needs a momentum encoder",
    "symmetric=true": "`symmetric` needs a momentum encoder",
    "data.part=valid": "`data.part` needs one of",
    "data.workers=-1": "`data.workers` needs a number from 0 to 1024; received -1",
    "precision=float8": "`precision` needs one of `full`, `bfloat16`, `float16`; received `float8`",
    "compile=1": "`compile` needs `true` or `false`; received 1",
    "schedule.formula=step": '`schedule.formula` goes with `schedule.name = "lambda"`',
    "schedule.name=lambda": "received the formula `` and the name `lambda`",
    "network.momentum_schedule=linear": "needs one of `constant`, `cosine`",
}


@pytest.mark.parametrize("override", WRONG)
def test_a_mistake_is_named(override):
    with pytest.raises(InputError, match=WRONG[override]):
        read_settings("simclr", [override])


def test_what_cannot_be_read_is_named(tmp_path):
    with pytest.raises(InputError, match=r"`simlcr` is not a preset; did you mean `simclr`\?"):
        read_settings("simlcr")
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_settings(str(tmp_path / "no.toml"))
    with pytest.raises(InputError, match="is not TOML"):
        read_settings("a = = 3")
    with pytest.raises(InputError, match="takes no queue"):
        read_settings("moco", ["objective=BYOL()"])
    with pytest.raises(InputError, match="`micro_batch = 8` needs both sides to learn"):
        read_settings("moco", ["micro_batch=8"])
    two = ["symmetric=true", "network.second_encoder=MLP(d_in=3)"]
    with pytest.raises(InputError, match=r"`symmetric` with `network.queue = 4096` needs one"):
        read_settings("moco", two)


def test_a_newer_format_is_refused(tmp_path):
    text = f"format = 2\n{preset_text('simclr')}"
    (tmp_path / "mine.toml").write_text(text)
    for what in (text, tmp_path / "mine.toml", {"format": 2, "epochs": 1}):
        with pytest.raises(InputError, match=r"has format 2; .* by a newer Chiaroscuro"):
            read_settings(what)
    assert read_settings({"format": 1, "epochs": 1}).epochs == 1
