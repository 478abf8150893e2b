"""`Tokenizer`: texts as rows of token numbers, by bytes or by a vocabulary of another library."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.artifacts.files import read_json
from chiaroscuro.data.extras import bring
from chiaroscuro.errors import InputError, need

__all__ = ["BYTES", "Tokenizer"]

BYTES = 258
"""Tokens of texts that are read as bytes: 0 is padding, 1 to 256 are bytes, 257 comes first."""
_PADDINGS = ("[PAD]", "<pad>", "<|padding|>", "<|pad|>")


class Tokenizer:
    """Turn texts into rows of token numbers of equal length, padded at the end.

    Args:
        source: "" reads the bytes of UTF-8, which need no vocabulary; else a `tokenizer.json` of
            Hugging Face, or the folder that holds one.
        length: tokens of a text that are kept; the rest is cut.

    Example:
        >>> Tokenizer(length=3)(["a", "abc"])
        array([[257,  98,   0],
               [257,  98,  99]])
        >>> Tokenizer().n_tokens
        258
    """

    def __init__(self, source: str | os.PathLike = "", length: int = 96) -> None:
        self.source, self.length = os.fspath(source), length
        need(
            isinstance(length, int) and length >= 1,
            lambda: f"`Tokenizer(length={length!r})` needs a whole number of at least 1.",
        )
        if self.source:
            need(
                self.file.is_file(),
                lambda: (
                    f"`data.tokenizer={self.source}` needs a `tokenizer.json`, or a folder that "
                    f"holds one; there is none at `{self.file}`. "
                    "`AutoTokenizer.from_pretrained(...).save_pretrained(FOLDER)` of transformers "
                    "writes it."
                ),
            )

    @property
    def file(self) -> Path:
        """The `tokenizer.json`."""
        path = Path(self.source).expanduser()
        return path / "tokenizer.json" if path.is_dir() else path

    def files(self) -> dict[str, bytes]:
        """Return the contents of its files by name; none where texts are read as bytes."""
        if not self.source:
            return {}
        about = self.file.parent / "tokenizer_config.json"
        read = {"tokenizer.json": self.file.read_bytes()}
        return read | ({about.name: about.read_bytes()} if about.is_file() else {})

    @property
    def n_tokens(self) -> int:
        """The size of the vocabulary."""
        return int(self._library_tokenizer.get_vocab_size()) if self.source else BYTES

    @property
    def padding(self) -> int:
        """The token that fills short texts."""
        return self._padding if self.source else 0

    def __call__(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the tokens of some texts, (n, t) with t at most `length`."""
        if self.source:
            rows = [
                one.ids[: self.length] for one in self._library_tokenizer.encode_batch(list(texts))
            ]
        else:
            rows = [
                [BYTES - 1, *(byte + 1 for byte in text.encode())][: self.length] for text in texts
            ]
        out = np.full((len(rows), max(map(len, rows), default=1) or 1), self.padding, np.int64)
        for at, row in enumerate(rows):
            out[at, : len(row)] = row
        return out

    @functools.cached_property
    def _library_tokenizer(self) -> Any:
        library = bring("tokenizers", "`data.tokenizer`", "'chiaroscuro[transformers]'")
        try:
            made = library.Tokenizer.from_file(str(self.file))
        except Exception as error:  # noqa: BLE001 the library raises nothing narrower
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            raise InputError(f"`{self.file}` is no tokenizer that can be read: {reason}.") from None
        made.no_padding()
        made.enable_truncation(self.length)  # which keeps the tokens that end a text
        return made

    @functools.cached_property
    def _padding(self) -> int:
        file = self.file.parent / "tokenizer_config.json"
        about = read_json(file) if file.is_file() else {}
        named = about.get("pad_token") if isinstance(about, dict) else None
        named = named.get("content") if isinstance(named, dict) else named
        for name in (*([named] if isinstance(named, str) else []), *_PADDINGS):
            if (token := self._library_tokenizer.token_to_id(name)) is not None:
                return int(token)
        raise InputError(
            f"`{self.file}` names no token for padding, such as {', '.join(_PADDINGS)}; add one "
            "with `tokenizer.add_special_tokens`, and grow the model's vocabulary."
        )

    def __getstate__(self) -> dict[str, Any]:
        return {"source": self.source, "length": self.length}  # workers load their own

    def __repr__(self) -> str:
        return f"Tokenizer({self.source!r}, length={self.length})"
